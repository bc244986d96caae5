#!/usr/bin/env bash
# Boots both hosts; a host reboots by itself. Ends when one is killed.
#
# Descriptors 8 and 9 are the ends of the replication link (wire.c).
set -euo pipefail

node() {
    local host=$1 link=$2
    LD_PRELOAD=$TOOLS/umlshim.so TMPDIR=$LAB_DIR/ram exec "$KERNEL/usr/bin/linux.uml" \
        "umid=$host" "uml_dir=$LAB_DIR/ram/uml/" "mem=$LAB_MEMORY" \
        "ubd0=$LAB_DIR/ram/$host.cow,$IMAGE" \
        "ubd1=$LAB_DIR/ram/$host.drbd" "ubd2=$LAB_DIR/ram/$host.plain" \
        root=/dev/ubda rw init=/sbin/lab-init "hostfs=$LAB_DIR/share" \
        "lab.host=$host" "lab.cgroup=$LAB_CGROUP" "lab.write_cache=$LAB_WRITE_CACHE" \
        con=null con0=null,fd:1 ssl=null \
        "vec0:transport=tap,ifname=$host,depth=64,gro=1" "vec1:transport=fd,fd=$link,depth=64" \
        </dev/null >>"$LAB_DIR/$host.log" 2>&1
}

(node primary 8 9>&-) &
(node secondary 9 8>&-) &
wait -n || true
echo "a host ended: the lab ends"
