        INSERT INTO {table} VALUES (1, {payload});
