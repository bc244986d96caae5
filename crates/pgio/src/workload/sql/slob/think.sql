        IF random() < {think_share} THEN
            thinks := thinks + 1;
            thinks_until := date_part('epoch', clock_timestamp()) + {shortest} + random() * {more};
{release}
            t0 := clock_timestamp();
            PERFORM pg_sleep(least(thinks_until, deadline) - date_part('epoch', t0));
            thought_us := thought_us + date_part('epoch', clock_timestamp() - t0) * 1e6;
        END IF;
