# Lives on a host through one trial of a command: runs its lines one after the other, each as a process
# group of its own. When its stdin ends, however that comes about, it ends what is left of them and
# takes its directory away. What it prints is read by runner.rs.
# Of what a program wrote, as much is read back.
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

# A child that has ended stays in /proc, as a zombie, until the shell has waited for it. Others of its
# group may live on; those of them that are zombies wait for the first process of the machine or
# container, some of which never come.
alive() {
    read -r _ _ state _ 2>/dev/null <"/proc/$job/stat" && [ "$state" != Z ] && return
    wait "$job" 2>/dev/null
    kill -s 0 -- "-$job" 2>/dev/null || return
    for stat in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null <"$stat" || continue
        # Behind the name, which may hold anything: state, parent, group.
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
