# shellcheck shell=bash
# Checks whether the lab can run on this machine; reports what is missing and what to do. Changes nothing.

able() {
    [ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] ||
        cannot_run_here "the kernel of the two hosts is built for Linux on x86_64, this is $(uname -s) on $(uname -m)"
    [ "$(id -u)" = 0 ] ||
        cannot_run_here "namespaces, tap devices and chroot need root: try sudo $0"
    local program
    for program in ip unshare nsenter setsid setpriv flock ssh ssh-keygen; do
        command -v "$program" >/dev/null ||
            cannot_run_here "\`$program\` is missing: apt-get install iproute2 util-linux openssh-client"
    done
    [ -c /dev/net/tun ] ||
        cannot_run_here "/dev/net/tun is missing: modprobe tun, or give it to this container"
    unshare --net --pid --mount --fork -- sh -c 'ip tuntap add dev t0 mode tap' 2>/dev/null ||
        cannot_run_here "cannot create a namespace with a tap device: CAP_SYS_ADMIN and CAP_NET_ADMIN are required"
}

# Called only if something has to be built; a warm cache needs none of this.
able_to_build() {
    local program
    for program in apt-get apt-cache dpkg-deb perl gcc mke2fs; do
        command -v "$program" >/dev/null ||
            cannot_run_here "\`$program\` is missing: the image is built on Debian 12 with perl, gcc and e2fsprogs"
    done
    local package
    for package in user-mode-linux mmdebstrap postgresql-15 drbd-utils; do
        apt-cache show "$package" >/dev/null 2>&1 ||
            cannot_run_here "apt knows no package $package: needs Debian 12's sources, and apt-get update"
    done
}
