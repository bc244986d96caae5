# Runs the lines of a command on a host during one trial, one after the other, each as a process group.
# When its stdin closes for any reason, it kills the remaining processes and removes its directory.
# runner.rs parses its output. At most this many bytes of a program's output are read back.
most=16777216
job=
dir=
nl='
'
cleanup() {
    [ -z "$job" ] || kill -s KILL -- "-$job" 2>/dev/null
    [ -z "$dir" ] || rm -rf -- "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM PIPE

# A child that has ended stays in /proc as a zombie until the shell waits for it. Other processes of its
# group may live on; zombies among them wait for the init process of the machine or container, which may
# never reap them.
alive() {
    read -r _ _ state _ 2>/dev/null <"/proc/$job/stat" && [ "$state" != Z ] && return
    wait "$job" 2>/dev/null
    kill -s 0 -- "-$job" 2>/dev/null || return
    for stat in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null <"$stat" || continue
        # After the name, which can contain any character: state, parent, group.
        set -- ${line##*")"}
        [ "$3" != "$job" ] || [ "$1" = Z ] || return 0
    done
    return 1
}

if ! command -v setsid >/dev/null; then
    echo "missing setsid"
elif ! dir=$(mktemp -d "${TMPDIR:-/tmp}/pgio-command.XXXXXX" 2>&1); then
    echo "failed $dir"
    dir=
else
    echo "ready $dir"
fi
