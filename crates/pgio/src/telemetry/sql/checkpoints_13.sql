SELECT (checkpoints_timed + checkpoints_req)::float8 AS checkpoint
FROM pg_stat_bgwriter
