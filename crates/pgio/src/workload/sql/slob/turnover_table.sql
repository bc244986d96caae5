-- Rows like those of the data set, one per block. With a fillfactor below 14, a server before version
-- 14 would never reuse a vacuumed block.
CREATE {unlogged}TABLE {table} (mykey bigint, scratch bigint, filler char(1024)) WITH (fillfactor = 14);
COMMENT ON TABLE {table} IS '{mark}';
INSERT INTO {table}
    SELECT session * {keys_each} + position, 0, repeat('X', 1024)
      FROM generate_series(0, {sessions} - 1) session, generate_series(0, {depth} - 1) position;
CREATE INDEX ON {table} (mykey);
ANALYZE {table};
