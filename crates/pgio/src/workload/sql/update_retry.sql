            -- With several updates per transaction, two sessions can deadlock. The victim is rolled
            -- back and counted, and its session continues.
            BEGIN
                UPDATE {table} SET scratch = scratch + 1{wider} WHERE {update_where};
                GET DIAGNOSTICS n = ROW_COUNT;
            EXCEPTION WHEN deadlock_detected OR lock_not_available THEN
                deadlocks := deadlocks + 1;
                n := -1;
            END;
            IF n < 0 THEN
{roll_back}
                CONTINUE;
            END IF;
