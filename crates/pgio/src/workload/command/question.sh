case $ask in
"set "*) eval "export ${ask#set }" ;;
out | err) tail -c "$most" "$dir/$ask" ;;
"file "*)
    eval "set -- ${ask#file }"
    if [ ! -f "$1" ]; then
        echo missing
    elif [ "$dir/begun" -nt "$1" ]; then
        echo old
    else
        echo here
        tail -c "$most" "$1"
    fi
    ;;
*)
    case $ask in
    "run "*)
        eval "set -- ${ask#run }"
        rm -f -- "$dir/ended"
        : >"$dir/begun"
        # Notes by the host's own clock when the program began and ended, in one write; what that
        # shell itself has to say of it is not the program's.
        setsid sh -c '
            dir=$1
            shift
            read -r begun _ </proc/uptime
            (exec "$@" 2>&3 3>&-)
            status=$?
            read -r ended _ </proc/uptime
            echo "$status $begun $ended" >"$dir/ended"
        ' pgio-command "$dir" "$@" >"$dir/out" 2>/dev/null 3>"$dir/err" </dev/null &
        job=$!
        ;;
    "stop "*) [ -z "$job" ] || kill -s "${ask#stop }" -- "-$job" 2>/dev/null ;;
    esac
    # Whether it has ended is asked after it is found to be dead: it may do both at any moment.
    if [ -z "$job" ]; then
        echo "gone"
    elif [ ! -s "$dir/ended" ] && alive; then
        echo "running"
        if [ "$ask" = line ]; then
            last=out
            [ ! "$dir/err" -nt "$dir/out" ] || last=err
            tail -c 400 "$dir/$last"
        fi
    elif [ -s "$dir/ended" ]; then
        # What it left running would disturb whatever comes next.
        kill -s KILL -- "-$job" 2>/dev/null
        wait "$job" 2>/dev/null
        job=
        echo "ended $(cat "$dir/ended")"
    else
        job=
        echo "gone"
    fi
    ;;
esac
