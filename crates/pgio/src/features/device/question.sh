case $ask in
"run "*)
    eval "set -- ${ask#run }"
    fio "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    fio=$!
    ;;
stop) ! alive || kill -TERM "$fio" 2>/dev/null ;;
esac
if alive; then
    bytes=0
    while read -r what count; do
        case $what in read_bytes: | write_bytes:) bytes=$((bytes + count)) ;; esac
    done 2>/dev/null <"/proc/$fio/io"
    printf '%s\n' "running $bytes"
else
    # Its number may belong to another process by now.
    ended=$fio
    fio=
    if [ -n "$ended" ]; then
        wait "$ended"
        status=$?
    fi
    printf '%s\n' "ended $status"
    cat "$dir/err"
    echo "--out--"
    cat "$dir/out"
fi
