-- Moves with each checkpoint that was done. The counters of pg_stat_bgwriter and of 17's
-- pg_stat_checkpointer grow with skipped ones as well.
SELECT pg_wal_lsn_diff(checkpoint_lsn, '0/0')::float8 AS checkpoint
FROM pg_control_checkpoint()
