        ELSIF r < {scan_below} THEN
            t0 := clock_timestamp();
{exit}
            SELECT count(*) INTO n FROM {scan_table};
{record_scan}
            blocks_scanned := blocks_scanned + scan_blocks;
