# shellcheck shell=bash
# Identifies our process by its id and start time, because ids are reused.
#
# Everything in the lab depends on one process. It holds the namespaces (process ids, network,
# mounts), so when it ends, for any reason, the kernel ends and removes all the rest.

# Prints when a process started, in clock ticks since boot; fails if there is none.
started() {
    local stat fields
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name, in parentheses, may contain blanks: count fields after it.
    read -ra fields <<<"${stat##*) }"
    [ "${fields[0]}" != Z ] && echo "${fields[19]}"
}

# Called by the process itself, before it becomes the lab.
record_myself() {
    echo "$$ $(started $$)" >"$LAB_DIR/owner.new"
    mv "$LAB_DIR/owner.new" "$LAB_DIR/owner"
}

# Prints the id of the process that the lab depends on; fails if it is gone.
owner() {
    local pid start
    read -r pid start 2>/dev/null <"$LAB_DIR/owner" || return 1
    [ "$(started "$pid")" = "$start" ] && echo "$pid"
}

# Ends our process and removes what it left; does not touch a directory without our mark.
sweep() {
    local pid tries=0
    if pid=$(owner); then
        kill -KILL "$pid" 2>/dev/null || true
        while owner >/dev/null; do
            tries=$((tries + 1))
            [ "$tries" -le 100 ] || die "process $pid does not end"
            sleep 0.1
        done
    fi
    [ -e "$LAB_DIR/made-by-pgio-lab" ] && rm -rf -- "$LAB_DIR"
    return 0
}

# Allows one command at a time; the lock outlives the lab, so it is in the cache.
lock() {
    mkdir -p "$LAB_CACHE"
    exec 6>"$LAB_CACHE/lock"
    flock 6
}
