#!/bin/sh
# The original's pgio_reduce_free_memory.sh N: leaves N gigabytes of memory free, by `pgio ballast`,
# which asks for a yes on a terminal. `pgio ballast --release` gives them back.
case $1 in
'' | *[!0-9]*)
    echo "usage: pgio_reduce_free_memory.sh N (gigabytes to leave free)" >&2
    exit 2
    ;;
esac
size=$1G
shift
beside=$(dirname "$0")/../target/release/pgio
if command -v pgio >/dev/null 2>&1; then
    exec pgio ballast "$size" "$@"
elif [ -x "$beside" ]; then
    exec "$beside" ballast "$size" "$@"
fi
echo "pgio_reduce_free_memory.sh: pgio is neither in PATH nor built: run cargo build --release first" >&2
exit 2
