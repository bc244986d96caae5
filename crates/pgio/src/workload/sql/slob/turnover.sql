        ELSIF r < {turnover_below} THEN
            -- Alternate inserts and deletes: a queue of {depth} rows with the session's own keys.
            t0 := clock_timestamp();
{exit}
            IF turns % 2 = 0 THEN
                INSERT INTO {turnover_table} VALUES ({first_key} + {depth} + turns / 2, turns, new_filler);
{record_insert}
                rows_inserted := rows_inserted + 1;
            ELSE
                DELETE FROM {turnover_table} WHERE mykey = {first_key} + turns / 2;
                GET DIAGNOSTICS n = ROW_COUNT;
{record_delete}
                rows_deleted := rows_deleted + n;
            END IF;
            turns := turns + 1;
{commit}
