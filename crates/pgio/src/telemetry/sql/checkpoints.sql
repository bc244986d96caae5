-- Advances with each completed checkpoint. The counters of pg_stat_bgwriter and (since 17)
-- pg_stat_checkpointer include skipped checkpoints.
SELECT pg_wal_lsn_diff(checkpoint_lsn, '0/0')::float8 AS checkpoint
FROM pg_control_checkpoint()
