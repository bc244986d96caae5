# Runs the command after $1 with the log file $1. If $1 is empty, uses a temporary file for messages
# before the logging collector starts. On failure, prints the end of the log.
log=$1
own=
shift
[ -n "$log" ] || { log=$(mktemp) && own=yes || exit 1; }
"$@" -l "$log"
status=$?
[ "$status" = 0 ] || tail -n 15 -- "$log" >&2
[ -z "$own" ] || rm -f -- "$log"
exit "$status"
