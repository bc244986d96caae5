-- The original's source table. Nothing here reads it; it is for those who look for it.
CREATE TABLE {table} (mykey bigint, scratch bigint, filler char(1024))
    USING heap TABLESPACE {tablespace}
