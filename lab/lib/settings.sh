# shellcheck shell=bash
# Paths, options and messages. Sourced by every command; changes nothing.

set -euo pipefail

# Options, to be set in the environment.
LAB_CACHE=${LAB_CACHE:-/var/cache/pgio/lab}     # kernel and image, kept between runs
LAB_DIR=${LAB_DIR:-/run/pgio-lab}               # the running lab: logs, keys, owner
LAB_BINARY=${LAB_BINARY:-}                      # pgio; empty: the newest that cargo built here
LAB_CGROUP=${LAB_CGROUP:-v1}                    # v1 (blkio, memory), or v2 (io.max)
LAB_WRITE_CACHE=${LAB_WRITE_CACHE:-through}     # cache mode of the disks; back: with flushes, which can stall (lab-init)
LAB_MEMORY=${LAB_MEMORY:-1G}                    # memory of each host
LAB_DISK=${LAB_DISK:-1536M}                     # size of each disk: sparse files in memory
export LAB_CACHE LAB_DIR LAB_BINARY LAB_CGROUP LAB_WRITE_CACHE LAB_MEMORY LAB_DISK

# Fixed addresses: the namespace is the lab's own, so none can clash with one outside.
OUTSIDE_ADDRESS=192.168.77.1                    # this side of both hosts
PRIMARY_ADDRESS=192.168.77.11
SECONDARY_ADDRESS=192.168.77.12
export OUTSIDE_ADDRESS PRIMARY_ADDRESS SECONDARY_ADDRESS

EXIT_FAILED=1
EXIT_USAGE=2
EXIT_CANNOT_RUN_HERE=77

say() { printf 'lab: %s\n' "$*"; }

die() {
    printf 'lab: error: %s\n' "$*" >&2
    exit "$EXIT_FAILED"
}

misused() {
    printf 'usage: %s\n' "$*" >&2
    exit "$EXIT_USAGE"
}

# Not a failure: the lab cannot run on this machine. Has its own exit code for CI.
cannot_run_here() {
    printf 'lab: cannot run here: %s\n' "$*" >&2
    exit "$EXIT_CANNOT_RUN_HERE"
}
