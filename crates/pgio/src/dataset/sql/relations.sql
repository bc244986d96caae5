-- Tables of pgio.schema named in $1 and their indexes, with their tablespaces.
SELECT n.nspname::text AS schema,
       c.relname::text AS name,
       c.relkind = 'i' AS is_index,
       coalesce(own.spcname, database.spcname)::text AS tablespace,
       pg_catalog.pg_table_size(c.oid) AS bytes
  FROM pg_catalog.pg_class t
  LEFT JOIN pg_catalog.pg_index i ON i.indrelid = t.oid
  JOIN pg_catalog.pg_class c ON c.oid IN (t.oid, i.indexrelid)
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_tablespace own ON own.oid = c.reltablespace
  JOIN pg_catalog.pg_database d ON d.datname = current_database()
  JOIN pg_catalog.pg_tablespace database ON database.oid = d.dattablespace
 WHERE n.nspname = current_setting('pgio.schema') AND t.relkind = 'r' AND t.relname = ANY ($1::text[])
   AND {trusted}
 GROUP BY 1, 2, 3, 4, c.oid
 ORDER BY c.oid
