            -- With several updates in a transaction, two sessions can each hold what the other
            -- wants. The victim is rolled back and counted, and the session goes on.
            BEGIN
                UPDATE {table} SET scratch = scratch + 1{wider} WHERE {update_where};
                GET DIAGNOSTICS n = ROW_COUNT;
            EXCEPTION WHEN deadlock_detected OR lock_not_available THEN
                deadlocks := deadlocks + 1;
                n := -1;
            END;
            IF n < 0 THEN
{not_made}{roll_back}
                CONTINUE;
            END IF;
