# shellcheck shell=bash
# Paths, addresses and messages of the Kubernetes lab. Sourced; changes nothing.

set -euo pipefail

KUBE_CACHE=${KUBE_CACHE:-/var/cache/pgio/kubernetes}  # the built programs, kept between runs
KUBE_DIR=${KUBE_DIR:-/var/tmp/pgio-kubernetes}        # the running cluster: state, logs, keys
export KUBE_CACHE KUBE_DIR

# 1.35 refuses cgroup v1.
KUBE_VERSION=1.34.4

# A network for each: the node with its pods, PostgreSQL, and the machine of whoever runs pgio. The test
# `drivers::kubernetes` knows the names and addresses of the last two.
NODE=pgio-kube-node NODE_ADDRESS=10.99.0.2
SERVER=pgio-kube-14 SERVER_ADDRESS=10.99.0.14
CLIENT=pgio-kube-c CLIENT_ADDRESS=10.99.0.1
PODS=10.88.0.0/24

BIN=$KUBE_CACHE/bin
export KUBECONFIG=$KUBE_DIR/admin.kubeconfig

say() { printf 'kubernetes: %s\n' "$*"; }
die() {
    printf 'kubernetes: error: %s\n' "$*" >&2
    exit 1
}

# `ip netns exec` would mount another /sys, which hides the control groups.
in_network() {
    local name=$1
    shift
    nsenter --net="/run/netns/$name" "$@"
}

kube() { in_network "$CLIENT" "$BIN/kubectl" "$@"; }

# Repeats a command until it succeeds, for this many seconds.
within() {
    local seconds=$1 end
    shift
    end=$((SECONDS + seconds))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}
