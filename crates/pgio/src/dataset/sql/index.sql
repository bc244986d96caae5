CREATE INDEX {index} ON {table} (mykey) TABLESPACE {tablespace}
