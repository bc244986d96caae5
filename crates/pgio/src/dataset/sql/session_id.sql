SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint AS started
  FROM pg_catalog.pg_stat_activity
 WHERE pid = pg_catalog.pg_backend_pid()
