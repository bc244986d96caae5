-- All objects in pgio.schema that have the name of one of pgio's tables, marked or not: a view
-- or an index with such a name would also conflict.
SELECT c.relname::text AS name,
       c.relkind::text AS kind,
       pg_catalog.obj_description(c.oid, 'pg_class') AS comment,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
       CASE WHEN c.relkind = 'r' THEN pg_catalog.pg_total_relation_size(c.oid) ELSE 0 END AS bytes
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = current_setting('pgio.schema')
   AND c.relname ~ '^pgio([1-9][0-9]*|_base|_scan)$'
 ORDER BY length(c.relname), c.relname
