# For signature.rs: prints the type of a path, and for a block device or a file its size, its users and its
# signatures. One fact per line, the kind first. Read-only.
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH

print() { # KIND FILE: prints the first line of a readable file
    [ -r "$2" ] && IFS= read -r value 2>/dev/null <"$2" && printf '%s\n' "$1 $value"
}

real=$(readlink -f -- "$1") && [ -e "$real" ] || real=
case $real in
# A line break would begin another fact.
'' | *'
'*)
    echo "is nothing"
    exit 0
    ;;
*) printf '%s\n' "path $real" ;;
esac
sector() { # ENTRY of a device in /sys; a partition uses the queue of its disk
    print sector "$1/queue/logical_block_size" || print sector "${1%/*}/queue/logical_block_size"
}
device_sector() { # sector size of the device below a file or directory, if its file system has one device
    device=$(stat -c %d -- "$real")
    major=$((device >> 8 & 4095))
    minor=$((device & 255 | device >> 12 & 1048320))
    [ ! -e "/sys/dev/block/$major:$minor" ] || sector "$(readlink -f "/sys/dev/block/$major:$minor")"
}
file_system() { # type of the file system that a file or directory lies on
    printf '%s\n' "filesystem $(stat -f -c %T -- "$real")"
}
swaps() {
    while read -r swap _; do
        [ "$(readlink -f -- "$swap")" = "$real" ] && echo swap
    done </proc/swaps
}
signatures() {
    if found=$(wipefs --no-act --noheadings --parsable --output TYPE,USAGE,UUID,LABEL -- "$real" 2>&1); then
        printf '%s\n' "$found" | while read -r line; do
            [ -z "$line" ] || printf 'signature %s\n' "$line"
        done
    else
        printf 'unreadable %s\n' "$found"
    fi
}
if [ -d "$real" ]; then
    echo "is directory"
    set -- $(stat -f -c '%a %S' -- "$real")
    printf '%s\n' "free $(($1 * $2))"
    file_system
    device_sector
elif [ -f "$real" ]; then
    echo "is file"
    printf '%s\n' "bytes $(stat -c %s -- "$real")"
    set -- $(stat -c '%b %B' -- "$real")
    printf '%s\n' "allocated $(($1 * $2))"
    file_system
    device_sector
    for backing in /sys/block/loop*/loop/backing_file; do
        [ -r "$backing" ] && IFS= read -r file 2>/dev/null <"$backing" && [ "$file" = "$real" ] || continue
        loop=${backing%/loop/backing_file}
        printf '%s\n' "holder ${loop##*/}"
    done
    swaps
    ! command -v wipefs >/dev/null 2>&1 || signatures
elif [ ! -b "$real" ]; then
    echo "is other"
fi
[ -b "$real" ] || exit 0

echo "is block"
number=$((0x$(stat -c %t -- "$real"))):$((0x$(stat -c %T -- "$real")))
printf '%s\n' "number $number"
entry=$(readlink -f "/sys/dev/block/$number")
printf '%s\n' "name ${entry##*/}"
print sectors "$entry/size"
print read-only "$entry/ro"
sector "$entry"
print backing "$entry/loop/backing_file"
for above in "$entry"/holders/*; do
    [ -e "$above" ] && printf '%s\n' "holder ${above##*/}"
done
for part in "$entry"/*/partition; do
    [ -e "$part" ] && part=${part%/partition} && printf '%s\n' "partition ${part##*/}"
done
while read -r line; do
    printf 'mount %s\n' "$line"
done </proc/self/mountinfo
swaps
if ! command -v wipefs >/dev/null 2>&1; then
    echo "unreadable wipefs is not installed; install util-linux"
    exit 0
fi
# wipefs --all opens the device exclusively, even with --no-act, and so detects use by the kernel.
message=$(wipefs --no-act --all --quiet -- "$real" 2>&1) || printf 'busy %s\n' "$message"
signatures
exit 0
