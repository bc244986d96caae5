-- Whether the schema exists and is ours, its owner, whether this role may act for the owner, and whether the schema
-- may be used: not by a superuser if its owner could gain rights.
SELECT current_database()::text,
       current_user::text,
       has_database_privilege(current_database(), 'CREATE'),
       s.nspowner::regrole::text,
       coalesce(pg_has_role(s.nspowner, 'MEMBER'), false),
       v.oid IS NOT NULL,
       s.oid IS NULL OR {trusted_schema}
FROM (SELECT 1) AS one
LEFT JOIN pg_namespace s ON s.nspname = 'pgio_results'
LEFT JOIN pg_class v ON v.relnamespace = s.oid AND v.relname = 'schema_version'
