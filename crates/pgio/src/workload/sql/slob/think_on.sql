    -- Finish the think time that the end of the previous slice cut off; a new stream begins without
    -- one.
    IF seed IS NULL THEN
        thinks_until := coalesce(nullif(current_setting('pgio.thinks_until', true), ''), '0')::bigint / 1e6;
        t0 := clock_timestamp();
        IF thinks_until > date_part('epoch', t0) THEN
            PERFORM pg_sleep(least(thinks_until, deadline) - date_part('epoch', t0));
            thought_us := thought_us + date_part('epoch', clock_timestamp() - t0) * 1e6;
        END IF;
    END IF;
