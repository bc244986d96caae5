SELECT
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind = 'r'
   AND obj_description(c.oid, 'pg_class') = $3
   AND {trusted}
