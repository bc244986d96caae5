            t0 := clock_timestamp();
            COMMIT;
{record_commit}
