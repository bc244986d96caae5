SELECT sum(reads)::float8 AS client_reads,
       sum(reads * op_bytes)::float8 AS client_read_bytes,
       sum(writes)::float8 AS client_writes,
       sum(extends)::float8 AS client_extends,
       sum(fsyncs)::float8 AS client_fsyncs
FROM pg_stat_io
WHERE backend_type = 'client backend' AND object = 'relation'
