# For storage.rs: prints number and name of the disk of a path in /dev; for a partition, of its disk.
# Prints nothing if the path is not a block device. Read-only.
LC_ALL=C
export LC_ALL

real=$(readlink -f -- "$1") && [ -b "$real" ] || exit 0
number=$(stat -c '%t %T' -- "$real") || exit 0
node=$(readlink -f "/sys/dev/block/$((0x${number% *})):$((0x${number#* }))") || exit 0
[ -e "$node/partition" ] && node=${node%/*}
read -r number <"$node/dev" && printf '%s\n' "$number ${node##*/}"
