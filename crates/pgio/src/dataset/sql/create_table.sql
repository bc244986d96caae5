-- One row per 8 kB block: the first row fills a page beyond the fillfactor. The parameters include a
-- toast_tuple_target if rows must not be toasted.
CREATE {unlogged}TABLE {table} (mykey bigint, scratch bigint, filler char({filler_width}))
    USING heap WITH ({parameters}) TABLESPACE {tablespace}
