postmaster_of() { # PID: prints the first process of the PostgreSQL server that this process belongs to; fails if none
    # A server's processes are forks of its first one, and have the name of its program, whichever that is.
    postmaster=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
    [ -n "$postmaster" ] && [ "$(cat "/proc/$1/comm")" = "$(cat "/proc/$postmaster/comm")" ] || return
    file=/proc/$postmaster/cwd/postmaster.pid
    # Any user can name a process like one of a server: open no pipe.
    if [ -f "$file" ] && read -r pid <"$file"; then
        [ "$pid" = "$postmaster" ] || return
    else
        # Only its owner may read that file. Whatever their program, its processes call themselves so.
        grep -qs '^postgres: ' "/proc/$1/cmdline" || return
    fi
    printf '%s\n' "$postmaster"
} 2>/dev/null
