-- As a new session finds them: those that this session has set for itself show what they would be
-- without that. Two that initdb decides are shown always. Names that match $1, since they may hold a secret, are left out, and places, which say nothing of speed.
SELECT name,
       CASE WHEN source = 'session'
            THEN coalesce(reset_val || coalesce(' ' || unit, ''), '')
            ELSE coalesce(current_setting(name, true), '')
       END
FROM pg_settings
WHERE (source NOT IN ('default', 'override', 'client')
       OR name IN ('data_checksums', 'wal_segment_size'))
  AND (source <> 'session' OR reset_val IS DISTINCT FROM boot_val)
  AND name !~* $1
  AND name !~ '_(file|directory|directories)$'
  AND name NOT IN ('port', 'listen_addresses', 'external_pid_file', 'cluster_name',
                   'application_name', 'client_encoding')
ORDER BY name
