SELECT coalesce(application_name, ''),
       sync_state,
       pg_wal_lsn_diff(pg_current_wal_lsn(), sent_lsn)::float8,
       pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::float8,
       pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::float8,
       extract(epoch FROM write_lag)::float8,
       extract(epoch FROM flush_lag)::float8,
       extract(epoch FROM replay_lag)::float8
FROM pg_stat_replication
ORDER BY 1
