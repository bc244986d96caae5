#!/usr/bin/env bash
# The first process in the lab's own namespaces: network, disks, then the two hosts. It never returns
# while both run, and when it ends the kernel removes everything in here, mounts and disks included.
#
# Runs with the variables of settings.sh exported, and KERNEL, TOOLS, IMAGE. Next: nodes.sh.
set -euo pipefail

ip link set lo up
for host in primary secondary; do
    address=${host^^}_ADDRESS
    ip tuntap add dev "$host" mode tap
    ip address add "$WORLD_ADDRESS" peer "${!address}" dev "$host"
    ip link set "$host" up
done
# Ten datagrams, the default, are too few for the link; this is the namespace's own value.
echo 1024 >/proc/sys/net/unix/max_dgram_qlen

# Disks and memory of the hosts, seen by nobody outside.
mkdir -p "$LAB_DIR/ram"
mount -t tmpfs -o size=10G,mode=700 pgio-lab "$LAB_DIR/ram"
for disk in primary.drbd primary.plain secondary.drbd secondary.plain; do
    truncate -s "$LAB_DISK" "$LAB_DIR/ram/$disk"
done

exec "$TOOLS/wire" bash "$(dirname "$0")/nodes.sh"
