receivers() { # WHICH: prints /proc/PID of walreceivers: all, or those of this system identifier
    for process in $(grep -ls '^postgres:.*walreceiver' /proc/[0-9]*/cmdline); do
        process=${process%/*}
        # A control file begins with the system identifier. Who may not read it learns nothing else of
        # the standby either. Any user can name a process like a walreceiver: open no pipe.
        control=$process/cwd/global/pg_control
        case $1 in
        all) ;;
        *)
            [ -f "$control" ] || continue
            [ "$1" = "$(od -An -td8 -N8 "$control" 2>/dev/null | tr -d ' ')" ] || continue
            ;;
        esac
        echo "$process"
    done
}
