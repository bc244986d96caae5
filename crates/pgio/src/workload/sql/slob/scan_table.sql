-- Returns whether the table for scans exists, is pgio's and is not empty.
SELECT EXISTS (
    SELECT
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind = 'r'
       AND obj_description(c.oid, 'pg_class') LIKE 'pgio data set:%'
       AND pg_relation_size(c.oid) > 0)
