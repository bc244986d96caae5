        INSERT INTO {table} (n, filler) VALUES (1, {payload});
