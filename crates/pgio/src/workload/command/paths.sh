# Debian and others install PostgreSQL's own programs outside PATH.
found=
for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
    # The newest version comes last and must be found first.
    [ ! -d "$bin" ] || found=:$bin$found
done
PATH=$PATH:/usr/sbin:/sbin$found
