-- Bytes of these relations' main forks in shared_buffers. $1: their oids.
SELECT count(*) * current_setting('block_size')::bigint
  FROM {schema}.pg_buffercache b
  JOIN pg_catalog.pg_database d ON d.oid = b.reldatabase AND d.datname = current_database()
 WHERE b.relforknumber = 0
   AND b.relfilenode IN (
       SELECT pg_catalog.pg_relation_filenode(oid) FROM unnest($1::oid[]) AS oid
       )
