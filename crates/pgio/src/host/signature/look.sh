# Tells what signature.rs asks of one path: what it is, and for a block device or a file its size, who uses
# it and what it holds. One fact a line, its kind first. Changes nothing.
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH

tell() { # KIND FILE: its first line, where it can be read
    [ -r "$2" ] && read -r value 2>/dev/null <"$2" && echo "$1 $value"
}

if real=$(readlink -f -- "$1") && [ -e "$real" ]; then
    echo "path $real"
else
    echo "is nothing"
    exit 0
fi
sector() { # ENTRY of a device in /sys; a partition has the queue of its disk
    tell sector "$1/queue/logical_block_size" || tell sector "${1%/*}/queue/logical_block_size"
}
below() { # of a file or a directory, where its file system names one device
    lies=$(stat -c %d -- "$real")
    major=$((lies >> 8 & 4095))
    minor=$((lies & 255 | lies >> 12 & 1048320))
    [ ! -e "/sys/dev/block/$major:$minor" ] || sector "$(readlink -f "/sys/dev/block/$major:$minor")"
}
swaps() {
    while read -r swap _; do
        [ "$(readlink -f -- "$swap")" = "$real" ] && echo swap
    done </proc/swaps
}
holds() {
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
    echo "free $(($1 * $2))"
    below
elif [ -f "$real" ]; then
    echo "is file"
    echo "bytes $(stat -c %s -- "$real")"
    set -- $(stat -c '%b %B' -- "$real")
    echo "allocated $(($1 * $2))"
    below
    for backing in /sys/block/loop*/loop/backing_file; do
        [ -r "$backing" ] && read -r file 2>/dev/null <"$backing" && [ "$file" = "$real" ] || continue
        loop=${backing%/loop/backing_file}
        echo "holder ${loop##*/}"
    done
    swaps
    ! command -v wipefs >/dev/null 2>&1 || holds
elif [ ! -b "$real" ]; then
    echo "is other"
fi
[ -b "$real" ] || exit 0

echo "is block"
number=$((0x$(stat -c %t -- "$real"))):$((0x$(stat -c %T -- "$real")))
echo "number $number"
entry=$(readlink -f "/sys/dev/block/$number")
echo "name ${entry##*/}"
tell sectors "$entry/size"
tell read-only "$entry/ro"
sector "$entry"
tell backing "$entry/loop/backing_file"
for above in "$entry"/holders/*; do
    [ -e "$above" ] && echo "holder ${above##*/}"
done
for part in "$entry"/*/partition; do
    [ -e "$part" ] && part=${part%/partition} && echo "partition ${part##*/}"
done
while read -r line; do
    printf 'mount %s\n' "$line"
done </proc/self/mountinfo
swaps
if ! command -v wipefs >/dev/null 2>&1; then
    echo "unreadable there is no wipefs: install util-linux"
    exit 0
fi
# Opened exclusively for --all, even where nothing is done: what the kernel itself uses is refused.
said=$(wipefs --no-act --all --quiet -- "$real" 2>&1) || printf 'busy %s\n' "$said"
holds
exit 0
