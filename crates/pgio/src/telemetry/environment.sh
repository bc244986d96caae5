# Prints settings that must not change during a trial, of the host and of standbys on it; arguments:
# which standbys to look at (none, all, or those with this system identifier), and block devices.
# Read-only.
LC_ALL=C
export LC_ALL
look=$1
shift

show() { # NAME FILE: prints the first line of a readable file
    [ -r "$2" ] && read -r value 2>/dev/null <"$2" && echo "$1 $value"
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
        *,*) echo "governor $all" ;;
        *) echo "governor $only" ;;
        esac
    }
}
governors /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor
# Not by read alone, which takes single bytes: these files end after the first.
grep -Hs . /proc/sys/vm/dirty_* | while IFS=: read -r file value; do
    echo "vm.${file##*/} $value"
done
show transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
for device; do
    show "scheduler $device" "/sys/block/$device/queue/scheduler"
    show "read_ahead $device" "/sys/block/$device/queue/read_ahead_kb"
done
# Standbys on this host, by data directory: their settings as configured, because only a session of
# theirs knows which are in force. All at once, as each takes 20 ms. Any user can name a process
# like a walreceiver, so its program runs as its owner, and only if it belongs to that owner or root.
configured() { # POSTMASTER DIRECTORY SETTING
    value=$(PGDATA=$2 as=$as executable=$executable setting=$3 xargs -0 sh -c \
        'cd "$1" && shift 2 && exec $as "$executable" -C "$setting" "$@"' \
        sh "/proc/$1/cwd" <"/proc/$1/cmdline" 2>/dev/null) &&
        echo "standby $3 $value $2"
}
standbys() {
    for receiver in $(receivers "$look"); do
        postmaster=$(sed -n 's/^PPid:[[:space:]]*//p' "$receiver/status" 2>/dev/null)
        executable=$(readlink "/proc/$postmaster/exe") || continue
        directory=$(readlink "/proc/$postmaster/cwd") || continue
        owner=$(stat -c %u "/proc/$postmaster")
        case $(stat -L -c %u "$executable") in
        0 | "$owner") ;;
        *) continue ;;
        esac
        case $owner:$(id -u) in
        "$owner:$owner") as= ;;
        "$owner:0") as="setpriv --reuid $owner --regid $(stat -c %g "/proc/$postmaster") --clear-groups --" ;;
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
# DRBD's active configuration without defaults, except for options that experiments change. Names
# and options may require root.
if [ -r /proc/drbd ]; then
    PATH=$PATH:/usr/sbin:/sbin
    echo '==> drbd <=='
    sed -n 's/^version: \([^ ]*\).*/module \1/p' /proc/drbd
    show='show --show-defaults'
    { drbdsetup $show || sudo -n drbdsetup $show; } </dev/null 2>/dev/null | sed -E \
        '/^ *(protocol|al-extents|al-updates|disk-barrier|disk-flushes|md-flushes)[[:space:]]/!{/#.*default$/d;}'
fi
