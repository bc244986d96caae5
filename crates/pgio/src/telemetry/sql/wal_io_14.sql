SELECT wal_write::float8 AS wal_writes,
       wal_sync::float8 AS wal_fsyncs
FROM pg_stat_wal
