            -- One statement visits {batch} blocks at independently drawn keys: OFFSET 0 keeps the
            -- planner from pulling the draw up into the join.
            SELECT count(*) INTO n
              FROM (SELECT 1 + floor(random() * keys)::bigint AS k
                      FROM generate_series(1, {batch}) OFFSET 0) AS draw
              JOIN {table} AS t ON t.mykey = draw.k;
