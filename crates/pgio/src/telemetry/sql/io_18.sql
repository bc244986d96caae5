SELECT sum(reads) FILTER (WHERE client)::float8 AS client_reads,
       sum(read_bytes) FILTER (WHERE client)::float8 AS client_read_bytes,
       sum(writes) FILTER (WHERE client)::float8 AS client_writes,
       sum(extends) FILTER (WHERE client)::float8 AS client_extends,
       sum(fsyncs) FILTER (WHERE client)::float8 AS client_fsyncs,
       sum(writes) FILTER (WHERE object = 'wal')::float8 AS wal_writes,
       sum(fsyncs) FILTER (WHERE object = 'wal')::float8 AS wal_fsyncs
FROM (SELECT *, backend_type = 'client backend' AND object = 'relation' AS client
      FROM pg_stat_io) io
