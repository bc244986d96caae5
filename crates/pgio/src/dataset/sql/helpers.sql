-- Helper objects of workloads: tables and routines in pgio.schema whose names begin with pgio,
-- except the data set, and schemas created for a command of this role. `statement_name` is quoted for use in DROP.
SELECT 'table' AS kind,
       c.relname::text AS name,
       format('%I.%I', n.nspname, c.relname) AS statement_name,
       pg_catalog.obj_description(c.oid, 'pg_class') AS comment
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = current_setting('pgio.schema') AND c.relkind = 'r'
   AND c.relname LIKE 'pgio%' AND c.relname !~ '^pgio([1-9][0-9]*|_base|_scan)$'
UNION ALL
SELECT 'routine',
       p.proname::text,
       format('%I.%I(%s)', n.nspname, p.proname,
              pg_catalog.pg_get_function_identity_arguments(p.oid)),
       pg_catalog.obj_description(p.oid, 'pg_proc')
  FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = current_setting('pgio.schema') AND p.proname LIKE 'pgio%'
UNION ALL
SELECT 'schema',
       n.nspname::text,
       format('%I', n.nspname),
       pg_catalog.obj_description(n.oid, 'pg_namespace')
  FROM pg_catalog.pg_namespace n
 WHERE pg_catalog.obj_description(n.oid, 'pg_namespace')
       = 'pgio command workload: made and dropped by pgio'
   AND pg_catalog.pg_has_role(n.nspowner, 'USAGE')
 ORDER BY 1, 2
