-- The original's source table. pgio does not read it; it exists for compatibility.
CREATE TABLE {table} (mykey bigint, scratch bigint, filler char(1024))
    USING heap TABLESPACE {tablespace}
