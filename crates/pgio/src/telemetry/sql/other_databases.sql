SELECT datname::text,
       (xact_commit + xact_rollback)::float8,
       (tup_inserted + tup_updated + tup_deleted)::float8,
       (blks_hit + blks_read)::float8
FROM pg_stat_database
WHERE datname <> ALL ($1)
