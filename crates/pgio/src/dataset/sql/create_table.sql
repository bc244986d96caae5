-- One row per 8 kB block: the first row leaves a page fuller than 10 %.
CREATE TABLE {table} (mykey bigint, scratch bigint, filler char(1024))
    USING heap WITH (fillfactor = 10) TABLESPACE {tablespace}
