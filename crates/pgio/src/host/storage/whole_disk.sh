# Tells storage.rs which disk a path in /dev is or lies on, as a partition: number and name.
# Nothing where it is no block device. Reads only.
LC_ALL=C
export LC_ALL

real=$(readlink -f -- "$1") && [ -b "$real" ] || exit 0
number=$(stat -c '%t %T' -- "$real") || exit 0
node=$(readlink -f "/sys/dev/block/$((0x${number% *})):$((0x${number#* }))") || exit 0
[ -e "$node/partition" ] && node=${node%/*}
read -r number <"$node/dev" && echo "$number ${node##*/}"
