-- The tables of these names in pgio.schema, and their indexes. $1: names.
SELECT r.oid AS oid,
       pg_catalog.pg_relation_size(r.oid) AS bytes,
       pg_catalog.pg_relation_filepath(r.oid) AS file
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_setting('pgio.schema')
 CROSS JOIN LATERAL (
       SELECT c.oid
       UNION ALL
       SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
       ) AS r (oid)
 WHERE c.relname = ANY ($1::text[])
   AND c.relkind = 'r'
 ORDER BY r.oid
