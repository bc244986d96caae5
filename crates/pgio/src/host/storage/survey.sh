# For storage.rs: prints the real paths of the directories given as arguments, the mounts, and the tree
# of block devices. One fact per line, the kind first. Read-only.
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin # drbdsetup
export LC_ALL PATH

print() { # KIND NAME FILE: prints the first line of a readable file
    [ -r "$3" ] && IFS= read -r value 2>/dev/null <"$3" && printf '%s\n' "$1 $2 $value"
}

for directory; do
    if real=$(readlink -f -- "$directory" 2>/dev/null) && [ -d "$real" ]; then
        # A line break is printed as byte 1: it would begin another fact.
        case $real in
        *'
'*) real=$(printf %s "$real" | tr '\n' '\001') ;;
        esac
        printf '%s\n' "directory $real"
    else
        echo unreadable
    fi
done

while read -r line; do
    printf 'mount %s\n' "$line"
done </proc/self/mountinfo

for entry in /sys/class/block/*; do
    name=${entry##*/}
    print block "$name" "$entry/dev" || continue
    if [ -e "$entry/partition" ]; then
        disk=$(readlink -f "$entry")
        disk=${disk%/*}
        printf '%s\n' "below $name ${disk##*/}"
    fi
    for slave in "$entry"/slaves/*; do
        [ -e "$slave" ] && printf '%s\n' "below $name ${slave##*/}"
    done
    for attribute in scheduler write_cache fua rotational read_ahead_kb; do
        print "$attribute" "$name" "$entry/queue/$attribute"
    done
    print partition "$name" "$entry/partition"
    print dm-uuid "$name" "$entry/dm/uuid"
    print dm-name "$name" "$entry/dm/name"
    print md "$name" "$entry/md/level"
    print backing "$name" "$entry/loop/backing_file"
done

for entry in /sys/fs/btrfs/*/devices/*; do
    [ -e "$entry" ] || continue
    of=${entry%/devices/*}
    printf '%s\n' "btrfs ${of##*/} ${entry##*/}"
done

# Kernel module 8.4 does not list DRBD's disks as slaves, so ask DRBD, which may require root.
if [ -r /proc/drbd ]; then
    { drbdsetup show || sudo -n drbdsetup show; } </dev/null 2>/dev/null |
        while read -r line; do printf '%s\n' "drbd - $line"; done
fi
exit 0
