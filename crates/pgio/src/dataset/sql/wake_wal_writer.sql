-- A record outside a transaction needs no transaction ID and does not wait for a standby, and its end
-- wakes the WAL writer.
SELECT pg_logical_emit_message(false, 'pgio', '')
