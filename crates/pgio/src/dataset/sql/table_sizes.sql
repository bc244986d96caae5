-- The content of pgio_data_load_table_sizes.out: every table that the role may see, largest first.
SELECT format('"%s"."%s"', t.table_schema, t.table_name) AS table_name,
       pg_catalog.pg_size_pretty(pg_catalog.pg_table_size(c.oid)) AS table_size,
       pg_catalog.pg_size_pretty(pg_catalog.pg_indexes_size(c.oid)) AS indexes_size,
       pg_catalog.pg_size_pretty(pg_catalog.pg_total_relation_size(c.oid)) AS total_size
  FROM information_schema.tables t
  JOIN pg_catalog.pg_namespace n ON n.nspname = t.table_schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.table_name
 ORDER BY pg_catalog.pg_total_relation_size(c.oid) DESC NULLS LAST, t.table_schema, t.table_name
