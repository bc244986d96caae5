# Runs the command after $1 with the log file $1, or without one with a file of its own, which is
# only for what is said before the server's collector takes over. The end of it tells why it failed.
log=$1
own=
shift
[ -n "$log" ] || { log=$(mktemp) && own=yes || exit 1; }
"$@" -l "$log"
status=$?
[ "$status" = 0 ] || tail -n 15 -- "$log" >&2
[ -z "$own" ] || rm -f -- "$log"
exit "$status"
