-- The standby that commits wait for, else any. Nulls for a role that may not see it.
SELECT host(client_addr), client_port
FROM pg_stat_replication
WHERE state = 'streaming'
ORDER BY sync_state IN ('sync', 'quorum') DESC NULLS LAST, application_name
LIMIT 1
