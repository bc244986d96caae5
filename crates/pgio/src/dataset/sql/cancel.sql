-- Our own loading sessions only, and only while they execute.
SELECT pg_catalog.pg_cancel_backend(a.pid)
  FROM unnest($1::int[], $2::bigint[]) AS ours (pid, began)
  JOIN pg_catalog.pg_stat_activity a
    ON a.pid = ours.pid AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = ours.began
 WHERE a.state = 'active'
