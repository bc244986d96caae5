-- One row per 8 kB block: the first row leaves a page fuller than the fillfactor. A row that is to stay
-- whole has a toast_tuple_target among its parameters.
CREATE {unlogged}TABLE {table} (mykey bigint, scratch bigint, filler char({filler_width}))
    USING heap WITH ({parameters}) TABLESPACE {tablespace}
