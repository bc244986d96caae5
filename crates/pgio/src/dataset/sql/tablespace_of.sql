-- The tablespace of a table or index; no row if it does not exist. $1: schema, $2: name.
SELECT coalesce(own.spcname, database.spcname)::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_tablespace own ON own.oid = c.reltablespace
  JOIN pg_catalog.pg_database d ON d.datname = current_database()
  JOIN pg_catalog.pg_tablespace database ON database.oid = d.dattablespace
 WHERE n.nspname = $1 AND c.relname = $2
