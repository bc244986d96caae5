# PostgreSQL's own programs are in no PATH where Debian and others put them.
found=
for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
    # The newest comes last, and is to be found first.
    [ ! -d "$bin" ] || found=:$bin$found
done
PATH=$PATH:/usr/sbin:/sbin$found
