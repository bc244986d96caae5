#!/usr/bin/env bash
# The first process in the lab's namespaces: makes network and disks, then starts the two hosts. It runs
# as long as both hosts do. When it ends, the kernel removes everything here, including mounts and disks.
#
# Runs with the variables of settings.sh exported, and KERNEL, TOOLS, IMAGE. Next: nodes.sh.
set -euo pipefail

ip link set lo up
for host in primary secondary; do
    address=${host^^}_ADDRESS
    ip tuntap add dev "$host" mode tap
    ip address add "$OUTSIDE_ADDRESS" peer "${!address}" dev "$host"
    ip link set "$host" up
done
# Ten datagrams, the default, are too few for the link; this sets the namespace's value only.
echo 1024 >/proc/sys/net/unix/max_dgram_qlen

# Disks and memory of the hosts, invisible outside.
mkdir -p "$LAB_DIR/ram"
mount -t tmpfs -o size=10G,mode=700 pgio-lab "$LAB_DIR/ram"
for disk in primary.drbd primary.plain secondary.drbd secondary.plain; do
    truncate -s "$LAB_DISK" "$LAB_DIR/ram/$disk"
done

exec "$TOOLS/wire" bash "$(dirname "$0")/nodes.sh"
