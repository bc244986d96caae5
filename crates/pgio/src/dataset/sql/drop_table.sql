DROP TABLE {table}
