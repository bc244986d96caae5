# Prints settings that must not change during a trial, of the host and of standbys on it; arguments:
# which standbys to look at (none, all, or those with this system identifier), and block devices.
# Read-only.
LC_ALL=C
export LC_ALL
look=$1
shift

show() { # NAME FILE: prints the first line of a readable file
    [ -r "$2" ] && read -r value 2>/dev/null <"$2" && printf '%s\n' "$1 $value"
}

show kernel /proc/sys/kernel/osrelease
# One name if all processors have the same governor, else each with its number of processors.
governors() { # FILE ...
    [ -r "$1" ] || return
    cat "$@" 2>/dev/null | sort | uniq -c | {
        all=
        while read -r count name; do
            only=$name
            all="${all:+$all, }$name on $count"
        done
        case $all in
        '') ;;
        *,*) printf '%s\n' "governor $all" ;;
        *) printf '%s\n' "governor $only" ;;
        esac
    }
}
governors /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor
# Not by read alone, which takes single bytes: these files end after the first.
grep -Hs . /proc/sys/vm/dirty_* | while IFS=: read -r file value; do
    printf '%s\n' "vm.${file##*/} $value"
done
show transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
for device; do
    show "scheduler $device" "/sys/block/$device/queue/scheduler"
    show "read_ahead $device" "/sys/block/$device/queue/read_ahead_kb"
done
# Standbys on this host, by data directory: their settings as configured, because only a session of
# theirs knows which are in force. All at once, as each takes 20 ms. Nothing but its own program can
# read a server's files, includes and arguments. Any user can name a process like a walreceiver, so
# that program runs as its owner and never as root, and gets nothing of ours: neither variables nor
# terminal. They are dropped before the user changes: other processes of that user could read them.
newline='
'
configured() { # POSTMASTER DIRECTORY SETTING
    value=$(PGDATA=$2 as=$as executable=$executable setting=$3 xargs -0 sh -c \
        'cd "$1" && shift 2 && exec timeout -s KILL 4 \
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C PGDATA="$PGDATA" \
            $as "$executable" -C "$setting" "$@"' \
        sh "/proc/$1/cwd" <"/proc/$1/cmdline" 2>/dev/null | head -c 200)
    # A second line would pass for another fact.
    case $value:$2 in
    :* | *"$newline"*) ;;
    *) printf '%s\n' "standby $3 $value $2" ;;
    esac
}
ids() { # PID: prints user and group; nothing if the program runs with rights that its user lacks
    sed -n 's/^[UG]id:[[:space:]]*\([0-9]*\)[[:space:]]\1[[:space:]]\1[[:space:]]\1$/\1/p' "/proc/$1/status"
}
protected() { # USER PATH: whether nobody but root and this user can write to it
    case $(stat -c '%u %A' -- "$2") in
    "0 "?????-??-? | "$1 "?????-??-?) ;;
    *) return 1 ;;
    esac
}
standbys() {
    setsid=$(command -v setsid)
    for receiver in $(receivers "$look"); do
        postmaster=$(sed -n 's/^PPid:[[:space:]]*//p' "$receiver/status")
        executable=$(readlink "/proc/$postmaster/exe") || continue
        directory=$(readlink "/proc/$postmaster/cwd") || continue
        owner=$(ids "$postmaster")
        [ "$owner" = "$(ids "${receiver##*/}")" ] || continue
        set -- $owner
        # PostgreSQL refuses to run as root.
        [ $# = 2 ] && [ "$1" != 0 ] || continue
        # To be run, it must be a program of PostgreSQL; EDB's has another name.
        case ${executable##*/} in postgres | edb-postgres) ;; *) continue ;; esac
        # A program of a container must not run outside of it, and its path leads to another one here.
        [ "/proc/$postmaster/root" -ef / ] && [ "/proc/$postmaster/exe" -ef "$executable" ] || continue
        protected "$1" "$executable" && protected "$1" "${executable%/*}" || continue
        case $(id -u) in
        "$1") as=$setsid ;;
        0)
            setpriv=$(command -v setpriv) || continue
            as="$setsid $setpriv --reuid $1 --regid $2 --clear-groups --"
            ;;
        *) continue ;;
        esac
        for setting in fsync wal_sync_method shared_buffers recovery_min_apply_delay; do
            configured "$postmaster" "$directory" "$setting" &
        done
        wait
    done 2>/dev/null
}
[ "$look" = none ] || standbys
echo mounts
cat /proc/self/mountinfo
