-- FREEZE sets the hint bits now, so that the first reader does not have to.
COPY {table} (mykey, scratch, filler) FROM STDIN WITH (FORMAT binary, FREEZE)
