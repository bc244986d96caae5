-- The server's data directory, and settings that determine WAL retention. data_directory is NULL for
-- roles that may not read it.
SELECT CASE WHEN pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE')
            THEN current_setting('data_directory') END AS data_directory,
       pg_catalog.inet_server_addr() IS NULL AS by_socket,
       pg_catalog.pg_backend_pid() AS backend,
       current_setting('port')::int AS port,
       extract(epoch FROM pg_catalog.pg_postmaster_start_time())::bigint AS started,
       current_setting('wal_level') AS wal_level,
       pg_catalog.pg_size_bytes(current_setting('max_wal_size')) AS max_wal_size,
       current_setting('archive_mode') <> 'off' AS archiving,
       EXISTS (SELECT FROM pg_catalog.pg_replication_slots) AS slots
