-- The tablespace that pgio1 names for itself; null: the database's.
SELECT t.spcname::text AS tablespace
  FROM pg_catalog.pg_class c
  LEFT JOIN pg_catalog.pg_tablespace t ON t.oid = c.reltablespace
 WHERE c.oid = to_regclass('pgio1')
