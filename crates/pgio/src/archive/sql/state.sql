-- Whether the schema exists and is ours, its owner, and whether this role may act for the owner.
SELECT current_database()::text,
       current_user::text,
       has_database_privilege(current_database(), 'CREATE'),
       s.nspowner::regrole::text,
       coalesce(pg_has_role(s.nspowner, 'MEMBER'), false),
       v.oid IS NOT NULL
FROM (SELECT 1) AS one
LEFT JOIN pg_namespace s ON s.nspname = 'pgio_results'
LEFT JOIN pg_class v ON v.relnamespace = s.oid AND v.relname = 'schema_version'
