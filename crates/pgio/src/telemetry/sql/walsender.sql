-- Prefers the standby that commits wait for. Columns are null if the role may not see them.
SELECT host(client_addr), client_port
FROM pg_stat_replication
WHERE state = 'streaming'
ORDER BY sync_state IN ('sync', 'quorum') DESC NULLS LAST, application_name
LIMIT 1
