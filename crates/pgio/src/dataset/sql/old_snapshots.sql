-- The session of this database with the oldest snapshot, if that may see rows that were deleted before $1.
SELECT pid,
       coalesce(usename::text, backend_type) AS who,
       application_name,
       extract(epoch FROM clock_timestamp() - coalesce(xact_start, query_start, backend_start))::float8 AS seconds
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
  AND age(backend_xmin) > age($1::text::xid)
ORDER BY age(backend_xmin) DESC
LIMIT 1
