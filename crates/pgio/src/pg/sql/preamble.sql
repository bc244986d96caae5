-- The first statements of every session of pgio, in one message, because idle_session_timeout applies between two.
-- Until search_path is set, all names are qualified: the owner of a database can put another schema first.
SELECT pg_catalog.set_config('pgio.schema', coalesce(pg_catalog.current_schema()::pg_catalog.text, ''), false) IS NULL;
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
-- Settings on which results depend: what may abort or bend a session, and how values become text. Each with the
-- value now in force. Older versions lack some.
SELECT name, value, set_config(name, value, false)
  FROM (VALUES
    ('search_path', 'pg_catalog, pg_temp'),
    ('statement_timeout', '0'),
    ('lock_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'),
    ('idle_session_timeout', '0'),
    ('transaction_timeout', '0'),
    ('default_transaction_read_only', 'off'),
    ('default_transaction_isolation', 'read committed'),
    -- A canceled wait for a standby is a warning.
    ('client_min_messages', 'notice'),
    -- From a database without an encoding, text comes as it is: the server would refuse to send what is not UTF-8.
    ('client_encoding', CASE current_setting('server_encoding') WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END),
    ('extra_float_digits', '1'),
    ('DateStyle', 'ISO, MDY'),
    ('IntervalStyle', 'postgres'),
    ('TimeZone', 'UTC'),
    ('bytea_output', 'hex'),
    ('quote_all_identifiers', 'off'),
    ('standard_conforming_strings', 'on'),
    ('transform_null_equals', 'off'),
    ('array_nulls', 'on')
  ) AS wanted (name, value)
 WHERE current_setting(name, true) IS NOT NULL
