# Measures a place on a host: runs fio, one job after the other, and removes its files when its stdin
# closes for any reason. bench.rs parses its output and sets `where`, `make` and `bytes` before it.
PATH=$PATH:/usr/sbin:/sbin
fio=
status=
dir=
cleanup() {
    ! alive || kill -KILL "$fio" 2>/dev/null
    [ -z "$dir" ] || rm -rf -- "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM PIPE

# Some shells reap a child as soon as it has ended, others when they wait for it: it is a zombie until then.
# Afterwards another process may get its number, which is no child of ours.
alive() {
    [ -n "$fio" ] && read -r _ _ state parent _ 2>/dev/null <"/proc/$fio/stat" &&
        [ "$parent" = $$ ] && [ "$state" != Z ]
}

if ! version=$(fio --version 2>/dev/null); then
    echo "missing fio"
elif ! dir=$(mktemp -d "${TMPDIR:-/tmp}/pgio-fio.XXXXXX" 2>&1); then
    printf '%s\n' "failed $dir"
    dir=
elif [ "$make" = no ]; then
    printf '%s\n' "ready $version $where"
elif file=$(mktemp -- "$where/.pgio-device.XXXXXX" 2>&1); then
    # The directory may belong to another user, who could replace a file name that he has seen by a
    # link: with -C, the shell itself creates the file under a name that is still unknown.
    rm -f -- "$file"
    umask 077
    file=$(mktemp -u -- "$where/.pgio-device.XXXXXXXXXX")
    set -C
    exec 9>"$file"
    set +C
    # Use the full size; otherwise fio would create the file anew. The unlinked file disappears when the
    # last descriptor is closed.
    truncate -s "$bytes" -- "/proc/$$/fd/9"
    rm -f -- "$file"
    printf '%s\n' "ready $version /proc/$$/fd/9"
else
    printf '%s\n' "failed $file"
fi
