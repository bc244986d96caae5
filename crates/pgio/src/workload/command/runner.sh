# Runs the lines of a command on a host during one trial, one after the other, each as a process group.
# When its stdin closes for any reason, it kills the remaining processes and removes its directory.
# runner.rs parses its output. At most this many bytes of a program's output are read back.
most=16777216
job=
dir=
nl='
'
cleanup() {
    signal KILL
    [ -z "$dir" ] || rm -rf -- "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM PIPE

# Some shells reap a child as soon as it has ended, others when they wait for it: it is a zombie until then.
# Afterwards another process may get its number, which is no child of ours, or another group, which is not
# in its session. Other processes of its group may live on; zombies among them wait for the init process of
# the machine or container, which may never reap them.
alive() {
    [ -n "$job" ] || return
    read -r _ _ state parent _ 2>/dev/null <"/proc/$job/stat" &&
        [ "$parent" = $$ ] && [ "$state" != Z ] && return
    kill -s 0 -- "-$job" 2>/dev/null || return
    for stat in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null <"$stat" || continue
        # After the name, which can contain any character: state, parent, group, session.
        set -- ${line##*")"}
        [ "$3 $4" != "$job $job" ] || [ "$1" = Z ] || return 0
    done
    return 1
}
signal() { # NAME: sends a signal to all processes of the program
    ! alive || kill -s "$1" -- "-$job" 2>/dev/null
}

if ! command -v setsid >/dev/null; then
    echo "missing setsid"
elif ! dir=$(mktemp -d "${TMPDIR:-/tmp}/pgio-command.XXXXXX" 2>&1); then
    printf '%s\n' "failed $dir"
    dir=
else
    printf '%s\n' "ready $dir"
fi
