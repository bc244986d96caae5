# Lives on a host as long as a place is measured there: runs fio, one job after the other, and takes
# away what was made for it when its stdin ends, however that comes about. What it prints is read by
# bench.rs. `where`, `make` and `bytes` are set in front of it.
PATH=$PATH:/usr/sbin:/sbin
fio=
dir=
cleanup() {
    [ -z "$fio" ] || kill -KILL "$fio" 2>/dev/null
    [ -z "$dir" ] || rm -rf -- "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM PIPE

# A child that has ended stays in /proc, as a zombie, until the shell has waited for it.
alive() {
    [ -n "$fio" ] && read -r _ _ state _ 2>/dev/null <"/proc/$fio/stat" && [ "$state" != Z ]
}

if ! version=$(fio --version 2>/dev/null); then
    echo "missing fio"
elif ! dir=$(mktemp -d "${TMPDIR:-/tmp}/pgio-fio.XXXXXX" 2>&1); then
    echo "failed $dir"
    dir=
elif [ "$make" = no ]; then
    echo "ready $version $where"
elif file=$(mktemp -- "$where/.pgio-device.XXXXXX" 2>&1); then
    # The directory may be another user's, who could put a link in the place of a file that is opened by
    # a name which he has seen: with -C the shell makes it itself, under a name that nobody knows yet.
    rm -f -- "$file"
    umask 077
    file=$(mktemp -u -- "$where/.pgio-device.XXXXXXXXXX")
    set -C
    exec 9>"$file"
    set +C
    # Of full size, or fio would make it anew. Without a name it is gone with the last who has it
    # open.
    truncate -s "$bytes" -- "/proc/$$/fd/9"
    rm -f -- "$file"
    echo "ready $version /proc/$$/fd/9"
else
    echo "failed $file"
fi
