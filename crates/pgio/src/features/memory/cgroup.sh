# Limits the memory of a server's processes by a control group of our own, version 1 or 2.
# Functions only; cgroup.rs calls one of them, and adds postmaster.sh.
LC_ALL=C
export LC_ALL

# Limits and weights of a group of version 2 besides memory.max. Each is written after those that it depends on.
LIMITS='cpu.idle cpu.max cpu.max.burst cpu.uclamp.max cpu.uclamp.min cpu.weight cpuset.cpus cpuset.mems
    io.bfq.weight io.latency io.max io.prio.class io.weight memory.high memory.low memory.min memory.oom.group
    memory.swap.high memory.swap.max memory.zswap.max pids.max'

# Where the group of process $1 is for the memory controller: `VERSION DIRECTORY`.
group_of() {
    line=$(grep -E '^[0-9]+:([^:]*,)?memory(,[^:]*)?:' "/proc/$1/cgroup")
    version=1
    [ -n "$line" ] || { version=2 && line=$(grep '^0::' "/proc/$1/cgroup"); }
    path=${line#*:}
    path=${path#*:}
    mount=$(awk -v version="$version" '
        { for (i = 7; i < NF && $i != "-"; i++); }
        version == 1 && $(i + 1) == "cgroup" && $(i + 3) ~ /(^|,)memory(,|$)/ { print $4, $5; exit }
        version == 2 && $(i + 1) == "cgroup2" { print $4, $5; exit }' /proc/self/mountinfo)
    [ -n "$mount" ] || return 1
    root=${mount% *}
    [ "$root" = / ] || path=${path#"$root"}
    directory=${mount#* }$path
    printf '%s\n' "$version ${directory%/}"
}

# What there is around the server of backend $1.
look() {
    postmaster=$(postmaster_of "$1") || return 0
    found=$(group_of "$postmaster") || return 0
    version=${found%% *}
    directory=${found#* }
    printf '%s\n' "postmaster $postmaster"
    printf '%s\n' "prior $directory"
    if [ "$version" = 1 ]; then
        ours=$directory/pgio-ballast-$postmaster
        limit=$directory/memory.limit_in_bytes
    else
        # A group that holds processes cannot have groups with a limit below it, so ours is beside it.
        parent=${directory%/*}
        # Only the root has no type; there is nothing beside it.
        [ -e "$directory/cgroup.type" ] || parent=$directory
        ours=$parent/pgio-ballast-$postmaster
        limit=$directory/memory.max
        grep -qw memory "$parent/cgroup.subtree_control" 2>/dev/null || printf '%s\n' "uncontrolled $parent"
        partition=$(cat "$directory/cpuset.cpus.partition" 2>/dev/null)
        [ "${partition:-member}" = member ] || printf '%s\n' "partition $partition"
        high=$directory/memory.high
        [ -r "$high" ] && printf '%s\n' "limit $(cat "$high")"
    fi
    printf '%s\n' "group $ours"
    [ -r "$limit" ] && printf '%s\n' "limit $(cat "$limit")"
    [ -d "$ours" ] && echo "exists"
    [ -w "${ours%/*}/cgroup.procs" ] && [ -w "$directory/cgroup.procs" ] &&
        [ -w /proc/sys/vm/drop_caches ] && echo "writable"
    return 0
}

# Process $1 and all below it.
family() {
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v root="$1" '
        { pid = $1; sub(/.*\) /, ""); if ($1 != "Z") parent[pid] = $2 }
        END {
            for (pid in parent) {
                for (up = pid; up != root && up in parent; up = parent[up]);
                if (up == root) print pid
            }
        }'
}

# Those of the family of $2 that are not in group $1. The family is listed first, so that
# processes that start later are not considered and those that have ended do not count.
outside() {
    family=$(family "$2")
    inside=$(cat "$1/cgroup.procs" 2>/dev/null)
    for pid in $family; do
        case "
$inside
" in
        *"
$pid
"*) ;;
        *) if lives "$pid"; then printf '%s\n' "$pid"; fi ;;
        esac
    done
}

# One that is ending (PF_EXITING of its flags) is in no group any more, and cannot be moved.
lives() {
    set -- $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null)
    case ${1:-Z} in [ZX]) return 1 ;; esac
    [ $(($7 & 4)) = 0 ]
}

limit_of() {
    if [ -e "$1/memory.max" ]; then printf '%s\n' "$1/memory.max"; else printf '%s\n' "$1/memory.limit_in_bytes"; fi
}

# Gives group $2 of version 2 the limits of group $1 beside it, so that the server keeps those of its unit. A group of
# version 1 is below the server's and has none of these files of its own.
take_over() {
    for file in $LIMITS; do
        [ -r "$1/$file" ] || continue
        # In any order: the kernel shows the device first that was limited last.
        theirs=$(sort "$1/$file")
        [ "$theirs" = "$(sort "$2/$file" 2>/dev/null)" ] && continue
        # It takes one line at a time.
        printf '%s\n' "$theirs" | while IFS= read -r line; do printf '%s\n' "$line" >"$2/$file"; done
        [ "$theirs" = "$(sort "$2/$file")" ] && continue
        printf '%s\n' "$2 cannot have the limit of the server's unit, $1/$file: $theirs" >&2
        return 1
    done
}

# Moves the family of $3 from group $4 into group $1, which may have $2 bytes.
enter() {
    mkdir "$1" || exit
    printf '%s\n' "$2" >"$(limit_of "$1")" || exit
    take_over "$4" "$1" || exit
    # Pages that were read before belong to the former group, and would stay as they are.
    sync
    echo 3 >/proc/sys/vm/drop_caches || exit
    # The postmaster first: what it starts from then on is born inside.
    printf '%s\n' "$3" >"$1/cgroup.procs" || exit
    round=0
    while [ $((round += 1)) -le 20 ]; do
        left=$(outside "$1" "$3")
        [ -n "$left" ] || return 0
        # One that has ended meanwhile is no loss.
        for pid in $left; do printf '%s\n' "$pid" >"$1/cgroup.procs"; done 2>/dev/null
        sleep 0.1
    done
    printf '%s\n' "processes $left cannot be moved to $1" >&2
    exit 1
}

# Moves all back from group $1 to $2 and removes it; all is well where it is gone already.
leave() {
    [ -d "$1" ] || return 0
    to=$2
    [ -d "$to" ] || to=${1%/*}
    round=0
    while inside=$(cat "$1/cgroup.procs") && [ -n "$inside" ] && [ $((round += 1)) -le 50 ]; do
        for pid in $inside; do printf '%s\n' "$pid" >"$to/cgroup.procs"; done 2>/dev/null
    done
    # The kernel lets go of the last process a moment later.
    for attempt in 1 2 3 4 5 6 7 8 9; do
        rmdir "$1" 2>/dev/null && return 0
        sleep 0.1
    done
    rmdir "$1"
}

# How group $1 stands, with the family of $2; $3 is `all` where every process is to be looked for.
state() {
    [ -d "$1" ] || return 0
    printf '%s\n' "limit $(cat "$(limit_of "$1")")"
    grep -qx "$2" "$1/cgroup.procs" && echo "postmaster"
    [ "$3" = all ] || return 0
    printf '%s\n' "outside $(outside "$1" "$2" | wc -l)"
    for file in memory.usage_in_bytes memory.current; do
        [ -r "$1/$file" ] && printf '%s\n' "used $(cat "$1/$file")"
    done
    return 0
}
