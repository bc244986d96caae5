CREATE TABLE {table} ({key}n integer, filler text);
COMMENT ON TABLE {table} IS '{mark}';
