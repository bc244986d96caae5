            -- One statement visits {batch} blocks at keys drawn one by one: OFFSET 0 keeps the
            -- draw from being pulled up into the join.
            SELECT count(*) INTO n
              FROM (SELECT 1 + floor(random() * keys)::bigint AS k
                      FROM generate_series(1, {batch}) OFFSET 0) AS draw
              JOIN {table} AS t ON t.mykey = draw.k;
