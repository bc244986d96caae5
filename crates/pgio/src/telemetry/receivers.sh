system_identifier() { # /proc/PID of a walreceiver: prints its cluster's, if the control file can be read
    # The file begins with it. Any user can name a process like a walreceiver: open no pipe.
    [ -f "$1/cwd/global/pg_control" ] &&
        od -An -td8 -N8 "$1/cwd/global/pg_control" 2>/dev/null | tr -d ' '
}
receivers() { # WHICH: prints /proc/PID of walreceivers: all, or those of this system identifier
    for process in $(grep -ls '^postgres:.*walreceiver' /proc/[0-9]*/cmdline); do
        process=${process%/*}
        # Who may not read a control file learns nothing else of the standby either.
        case $1 in
        all) ;;
        *) [ "$1" = "$(system_identifier "$process")" ] || continue ;;
        esac
        printf '%s\n' "$process"
    done
}
