-- The tablespace of pgio1; null means the database's default.
SELECT t.spcname::text AS tablespace
  FROM pg_catalog.pg_class c
  LEFT JOIN pg_catalog.pg_tablespace t ON t.oid = c.reltablespace
 WHERE c.oid = to_regclass(format('%I.pgio1', current_setting('pgio.schema')))
