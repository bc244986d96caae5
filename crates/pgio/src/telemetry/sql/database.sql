SELECT blks_hit::float8 AS blocks_hit,
       blks_read::float8 AS blocks_read,
       xact_commit::float8 AS commits
FROM pg_stat_database
WHERE datname = $1
