-- Distances to the end of the WAL: of a primary what it wrote, of a standby with standbys of its own what
-- it received.
SELECT coalesce(application_name, ''),
       sync_state,
       pg_wal_lsn_diff(present.lsn, sent_lsn)::float8,
       pg_wal_lsn_diff(present.lsn, flush_lsn)::float8,
       pg_wal_lsn_diff(present.lsn, replay_lsn)::float8,
       extract(epoch FROM write_lag)::float8,
       extract(epoch FROM flush_lag)::float8,
       extract(epoch FROM replay_lag)::float8
FROM pg_stat_replication,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                  ELSE pg_current_wal_lsn() END AS lsn) present
ORDER BY 1
