-- A record outside any transaction takes no transaction number and waits for no standby, and its end
-- wakes the WAL writer.
SELECT pg_logical_emit_message(false, 'pgio', '')
