SELECT (num_timed + num_requested)::float8 AS checkpoint
FROM pg_stat_checkpointer
