-- Where a table or index lies now; no row when there is none of that name. $1: its schema, $2: its name.
SELECT coalesce(own.spcname, database.spcname)::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_tablespace own ON own.oid = c.reltablespace
  JOIN pg_catalog.pg_database d ON d.datname = current_database()
  JOIN pg_catalog.pg_tablespace database ON database.oid = d.dattablespace
 WHERE n.nspname = $1 AND c.relname = $2
