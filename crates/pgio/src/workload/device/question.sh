case $ask in
"run "*)
    eval "set -- ${ask#run }"
    fio "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    fio=$!
    ;;
stop) [ -z "$fio" ] || kill -TERM "$fio" 2>/dev/null ;;
esac
if alive; then
    echo running
else
    wait "$fio"
    echo "ended $?"
    cat "$dir/err"
    echo "--out--"
    cat "$dir/out"
fi
