case $ask in
"run "*)
    eval "set -- ${ask#run }"
    fio "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    fio=$!
    ;;
stop) [ -z "$fio" ] || kill -TERM "$fio" 2>/dev/null ;;
esac
if alive; then
    bytes=0
    while read -r what count; do
        case $what in read_bytes: | write_bytes:) bytes=$((bytes + count)) ;; esac
    done 2>/dev/null <"/proc/$fio/io"
    echo "running $bytes"
else
    wait "$fio"
    echo "ended $?"
    cat "$dir/err"
    echo "--out--"
    cat "$dir/out"
fi
