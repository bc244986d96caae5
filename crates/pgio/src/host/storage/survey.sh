# Tells what storage.rs asks: where the directories given as arguments really are, what is mounted,
# and the tree of block devices. One fact a line, its kind first. Reads only.
LC_ALL=C
export LC_ALL

tell() { # KIND NAME FILE: its first line, where it can be read
    [ -r "$3" ] && read -r value 2>/dev/null <"$3" && echo "$1 $2 $value"
}

for directory; do
    if real=$(readlink -f -- "$directory" 2>/dev/null) && [ -d "$real" ]; then
        echo "directory $real"
    else
        echo "unreadable $directory"
    fi
done

while read -r line; do
    printf 'mount %s\n' "$line"
done </proc/self/mountinfo

for entry in /sys/class/block/*; do
    name=${entry##*/}
    tell block "$name" "$entry/dev" || continue
    if [ -e "$entry/partition" ]; then
        disk=$(readlink -f "$entry")
        disk=${disk%/*}
        echo "below $name ${disk##*/}"
    fi
    for slave in "$entry"/slaves/*; do
        [ -e "$slave" ] && echo "below $name ${slave##*/}"
    done
    for attribute in scheduler write_cache fua rotational read_ahead_kb; do
        tell "$attribute" "$name" "$entry/queue/$attribute"
    done
    tell partition "$name" "$entry/partition"
    tell dm-uuid "$name" "$entry/dm/uuid"
    tell dm-name "$name" "$entry/dm/name"
    tell md "$name" "$entry/md/level"
    tell backing "$name" "$entry/loop/backing_file"
done

for entry in /sys/fs/btrfs/*/devices/*; do
    [ -e "$entry" ] || continue
    of=${entry%/devices/*}
    echo "btrfs ${of##*/} ${entry##*/}"
done

# Only DRBD itself knows its disks where the kernel's module makes no slaves of them.
if command -v drbdsetup >/dev/null 2>&1; then
    drbdsetup show 2>/dev/null | while read -r line; do echo "drbd - $line"; done
fi
exit 0
