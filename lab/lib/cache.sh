# shellcheck shell=bash
# Makes kernel, tools and image once and keeps them under LAB_CACHE.
#
# Each is a directory named by a hash of its sources, made beside its place and renamed, so a directory that
# exists is complete. The caller holds the lock. Next: image/build.

hash_of() { sha256sum | cut -c1-16; }

# Sets TOOLS, KERNEL and IMAGE, making what is missing.
cached() {
    rm -rf -- "$LAB_CACHE"/new.*
    tools
    kernel
    image
}

# once NAME COMMAND...: runs COMMAND with an empty directory that becomes LAB_CACHE/NAME.
once() {
    local name=$1 new
    shift
    [ -e "$LAB_CACHE/$name" ] && return
    able_to_build
    new=$(mktemp -d "$LAB_CACHE/new.XXXXXX")
    chmod 755 "$new"
    "$@" "$new" || die "$name could not be made (see above)"
    mv "$new" "$LAB_CACHE/$name"
}

tools() {
    local recipe
    recipe=$(cat "$HERE"/*.c | hash_of)
    export TOOLS=$LAB_CACHE/tools-$recipe
    once "tools-$recipe" compile
}

compile() {
    gcc -O2 -Wall -Wextra -shared -fPIC -o "$1/umlshim.so" "$HERE/umlshim.c" &&
        gcc -O2 -Wall -Wextra -o "$1/wire" "$HERE/wire.c"
}

# A cached kernel is never replaced.
kernel() {
    export KERNEL=$LAB_CACHE/kernel
    once kernel unpack user-mode-linux
}

# unpack PACKAGE DIRECTORY: its files, without installing it here.
unpack() {
    local deb
    (cd "$2" && apt-get -q=2 -o APT::Sandbox::User=root download "$1") &&
        deb=$(echo "$2"/*.deb) && dpkg-deb -x "$deb" "$2" && rm "$deb"
}

image() {
    local recipe
    recipe=$({
        (cd "$HERE/image" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
        ls "$KERNEL/usr/lib/uml/modules"
    } | hash_of)
    export IMAGE=$LAB_CACHE/image-$recipe/root.ext4
    if ! [ -e "$IMAGE" ]; then
        say "making the image of the hosts, once (a few minutes) ..."
        once mmdebstrap unpack mmdebstrap
        once "image-$recipe" apart "$HERE/image/build" "$KERNEL" "$LAB_CACHE/mmdebstrap"
        # shellcheck disable=SC2012  # our own names: image- and hexadecimal digits
        ls -td "$LAB_CACHE"/image-* | tail -n +4 | xargs -r -d '\n' rm -rf --
    fi
    touch "$LAB_CACHE/image-$recipe"
}

# Its mounts and processes end with it, and it ends with this script.
apart() {
    setpriv --pdeathsig KILL -- \
        unshare --mount --pid --fork --kill-child=KILL --mount-proc -- "$@" 6>&-
}
