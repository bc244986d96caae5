        FOR i IN 1 .. {rows_per_transaction} LOOP
            INSERT INTO {table} (n, filler) VALUES (i, {payload});
        END LOOP;
