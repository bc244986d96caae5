SELECT count(*)
  FROM unnest($1::int[], $2::bigint[]) AS sessions (pid, started)
  JOIN pg_catalog.pg_stat_activity a
    ON a.pid = sessions.pid AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = sessions.started
