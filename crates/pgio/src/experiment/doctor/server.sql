SELECT current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       pg_has_role(current_user, 'pg_monitor', 'USAGE') AS monitors,
       -- Since 15; before it only superusers may.
       EXISTS (SELECT 1 FROM pg_roles
               WHERE rolname = 'pg_checkpoint' AND pg_has_role(current_user, oid, 'USAGE'))
           AS checkpoints,
       current_setting('autovacuum') = 'on' AS autovacuum,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')
           AS vacuum_workers,
       (SELECT setting::float8 FROM pg_settings WHERE name = 'checkpoint_timeout')
           AS checkpoint_timeout_s,
       (SELECT setting::float8 * 1048576 FROM pg_settings WHERE name = 'max_wal_size')
           AS max_wal_bytes,
       current_setting('checkpoint_completion_target')::float8 AS checkpoint_target,
       (SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS connected,
       (SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
          AND state <> 'idle' AND application_name NOT LIKE 'pgio:%') AS at_work,
       (SELECT count(*) FROM pg_stat_activity
        WHERE application_name LIKE 'pgio:%' AND pid <> pg_backend_pid()) AS ours,
       pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers,
       current_setting('track_io_timing') = 'on' AS track_io_timing,
       (SELECT string_agg(evtname::text, ', ' ORDER BY evtname) FROM pg_event_trigger WHERE evtenabled <> 'D')
           AS event_triggers
