-- Facts to check before a load, in one row. $1: requested tablespace, or NULL.
WITH place AS (
    SELECT coalesce(
        $1::text,
        nullif(current_setting('default_tablespace'), ''),
        (SELECT t.spcname::text
           FROM pg_catalog.pg_database d
           JOIN pg_catalog.pg_tablespace t ON t.oid = d.dattablespace
          WHERE d.datname = current_database())
    ) AS tablespace
)
SELECT nullif(current_setting('pgio.schema'), '') AS schema,
       current_user::text AS role,
       current_database()::text AS database,
       coalesce(pg_catalog.has_schema_privilege(
           (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_setting('pgio.schema')),
           'CREATE'), false) AS may_create,
       current_setting('block_size')::int AS block_size,
       pg_catalog.pg_is_in_recovery() AS in_recovery,
       current_setting('server_version_num')::int AS version_num,
       place.tablespace,
       t.oid IS NOT NULL AS tablespace_exists,
       -- The database's default tablespace requires no privilege.
       coalesce(t.oid = d.dattablespace
                OR pg_catalog.has_tablespace_privilege(t.oid, 'CREATE'), false)
           AS tablespace_usable,
       coalesce(pg_catalog.pg_tablespace_location(t.oid), '') AS tablespace_location
  FROM place
  JOIN pg_catalog.pg_database d ON d.datname = current_database()
  LEFT JOIN pg_catalog.pg_tablespace t ON t.spcname = place.tablespace
