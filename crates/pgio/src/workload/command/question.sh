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
        # Write the status and the host's clock at the start and end of the program, in one write. The
        # messages of this shell itself do not belong to the program.
        setsid sh -c '
            dir=$1
            shift
            read -r begun _ </proc/uptime
            (exec "$@" 2>&3 3>&-)
            status=$?
            read -r ended _ </proc/uptime
            printf "%s\n" "$status $begun $ended" >"$dir/ended"
        ' pgio-command "$dir" "$@" >"$dir/out" 2>/dev/null 3>"$dir/err" </dev/null &
        job=$!
        ;;
    "stop "*) signal "${ask#stop }" ;;
    esac
    # Check for its end only after it was found dead: it can end at any moment between two checks.
    if [ -z "$job" ]; then
        echo "gone"
    elif [ ! -s "$dir/ended" ] && alive; then
        echo "running"
        if [ "$ask" = line ]; then
            last=out
            [ ! "$dir/err" -nt "$dir/out" ] || last=err
            tail -c 400 "$dir/$last"
        fi
    else
        # Processes that it left running would disturb the next line.
        signal KILL
        # Its number may belong to another process group by now.
        ended=$job
        job=
        wait "$ended" 2>/dev/null
        if [ -s "$dir/ended" ]; then printf '%s\n' "ended $(cat "$dir/ended")"; else echo "gone"; fi
    fi
    ;;
esac
