        FOR i IN 1 .. {rows_per_transaction} LOOP
            INSERT INTO {table} VALUES (i, {payload});
        END LOOP;
