-- The session's database, with attributes that are not options of CREATE DATABASE. The columns of
-- pg_database differ between versions, so they are returned as JSON.
SELECT to_jsonb(d)::text AS columns,
       pg_catalog.pg_get_userbyid(d.datdba) AS owner,
       pg_catalog.pg_has_role(d.datdba, 'USAGE') AS owned,
       (SELECT rolsuper OR rolcreatedb FROM pg_catalog.pg_roles WHERE rolname = current_user) AS may_create,
       pg_catalog.pg_encoding_to_char(d.encoding) AS encoding,
       (SELECT spcname::text FROM pg_catalog.pg_tablespace WHERE oid = d.dattablespace) AS tablespace,
       pg_catalog.shobj_description(d.oid, 'pg_database') AS comment,
       EXISTS (SELECT FROM pg_catalog.pg_shseclabel l
                WHERE l.objoid = d.oid AND l.classoid = 'pg_catalog.pg_database'::regclass) AS labeled,
       (SELECT count(*) FROM pg_catalog.pg_stat_activity a
         WHERE a.datid = d.oid AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
           AND a.application_name NOT LIKE 'pgio%') AS other_sessions
  FROM pg_catalog.pg_database d WHERE d.datname = current_database()
