        ELSIF r < {turnover_below} THEN
            -- An insert and a delete in turn: a queue of {depth} rows, whose keys are this session's.
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
