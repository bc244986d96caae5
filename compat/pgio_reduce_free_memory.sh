#!/bin/sh
# The original's pgio_reduce_free_memory.sh N: leaves N gigabytes of memory free, by `pgio ballast`.
case $1 in
'' | *[!0-9]*)
    echo "usage: pgio_reduce_free_memory.sh N (gigabytes to leave free)" >&2
    exit 2
    ;;
esac
pgio=$(dirname "$0")/../target/release/pgio
if command -v pgio >/dev/null 2>&1; then
    pgio=pgio
fi
if "$pgio" ballast --help >/dev/null 2>&1; then
    exec "$pgio" ballast "$1G"
fi
echo "pgio_reduce_free_memory.sh: this pgio has no \`pgio ballast\` yet, so no memory was taken" >&2
exit 2
