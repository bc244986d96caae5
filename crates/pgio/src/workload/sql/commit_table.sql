CREATE TABLE {table} (n integer, filler text);
COMMENT ON TABLE {table} IS '{mark}';
