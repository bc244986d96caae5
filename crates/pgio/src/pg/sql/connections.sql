-- The client connections of the server, of the session's role and of its database, with their limits. Superusers
-- are exempt from CONNECTION LIMIT.
-- Without pg_read_all_stats, the type of other roles' sessions is hidden, but not their database and role: their
-- parallel workers then count as connections, while autovacuum workers have no role.
WITH clients AS (
    SELECT datid, usesysid
    FROM pg_stat_activity
    WHERE backend_type = 'client backend'
       OR backend_type IS NULL AND datid IS NOT NULL AND usesysid IS NOT NULL
)
SELECT current_setting('max_connections')::bigint,
       current_setting('superuser_reserved_connections')::bigint,
       coalesce(current_setting('reserved_connections', true), '0')::bigint,
       (SELECT count(*) FROM clients),
       r.rolname::text,
       CASE WHEN NOT r.rolsuper AND r.rolconnlimit >= 0 THEN r.rolconnlimit::bigint END,
       (SELECT count(*) FROM clients WHERE usesysid = r.oid),
       d.datname::text,
       CASE WHEN NOT r.rolsuper AND d.datconnlimit >= 0 THEN d.datconnlimit::bigint END,
       (SELECT count(*) FROM clients WHERE datid = d.oid)
FROM pg_roles r, pg_database d
WHERE r.rolname = session_user AND d.datname = current_database()
