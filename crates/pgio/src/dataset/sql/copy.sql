-- FREEZE writes the hint bits now, so that no first reader has to.
COPY {table} (mykey, scratch, filler) FROM STDIN WITH (FORMAT binary, FREEZE)
