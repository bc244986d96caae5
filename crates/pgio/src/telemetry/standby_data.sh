# Prints the data directories of standbys on this host: the working directories of walreceivers;
# argument: their system identifier, or `all`. Read-only.
for receiver in $(grep -ls '^postgres:.*walreceiver' /proc/[0-9]*/cmdline); do
    process=${receiver%/*}
    # A control file begins with the system identifier.
    case $1 in
    all) ;;
    *) [ "$1" = "$(od -An -td8 -N8 "$process/cwd/global/pg_control" 2>/dev/null | tr -d ' ')" ] || continue ;;
    esac
    readlink "$process/cwd" 2>/dev/null
done
exit 0
