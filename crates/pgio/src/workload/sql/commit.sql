            t0 := clock_timestamp();
            COMMIT;
            us := date_part('epoch', clock_timestamp() - t0) * 1e6;
            commit_us := commit_us + us;
            IF us > commit_max THEN
                commit_max := us;
            END IF;
            b := 17 + (ln(greatest(us, 0.5)) * 23.0831)::int;
            commit_h[b] := commit_h[b] + 1;
