-- The state of the tables that a run uses. $1: number of tables; pgio_scan is last. A missing table has
-- no row.
SELECT c.relname::text AS name,
       c.relkind = 'r' AS is_table,
       pg_catalog.obj_description(c.oid, 'pg_class') AS comment,
       CASE WHEN c.relkind = 'r' THEN pg_catalog.pg_relation_size(c.oid) ELSE 0 END
           / current_setting('block_size')::bigint AS pages,
       CASE WHEN c.relkind = 'r' THEN pg_catalog.pg_total_relation_size(c.oid) ELSE 0 END AS bytes,
       c.reltuples::float8 AS rows_estimated,
       c.relpersistence = 'u' AS unlogged,
       coalesce((SELECT option_value::int FROM pg_catalog.pg_options_to_table(c.reloptions)
                  WHERE option_name = 'fillfactor'), 100) AS fillfactor,
       -- The type modifier of char(n) is n + 4.
       coalesce((SELECT a.atttypmod - 4 FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attname = 'filler'), 0) AS filler_width,
       EXISTS (
           SELECT
             FROM pg_catalog.pg_index i
             JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
             JOIN pg_catalog.pg_am am ON am.oid = x.relam
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
            WHERE i.indrelid = c.oid AND am.amname = 'btree' AND a.attname = 'mykey'
              AND i.indisvalid AND i.indisready AND i.indpred IS NULL
       ) AS indexed
  FROM (SELECT n, 'pgio' || n AS name FROM generate_series(1, $1::int) AS n
        UNION ALL SELECT NULL, 'pgio_scan') AS wanted
  JOIN pg_catalog.pg_class c ON c.relname = wanted.name
  JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace AND s.nspname = current_setting('pgio.schema')
 ORDER BY wanted.n NULLS LAST
