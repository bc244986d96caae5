# Follows sample.sh and the commands of observers. host.rs adds the loop around answer().
answer() {
    case $1 in
    clock)
        date +%s.%N
        ;;
    mark)
        # A single head prints each file after a line with its name.
        head -n 99999 $files
        echo '==> processes <=='
        cat /proc/[0-9]*/stat
        # Listing many processes takes long enough for the processors to do much work.
        echo '==> stat after processes <=='
        cat /proc/stat
        echo '==> schedstats <=='
        grep -Hs . /proc/[0-9]*/schedstat
        echo '==> ios <=='
        grep -Hs -e _bytes -e wchar /proc/[0-9]*/io
        echo '==> walreceivers <=='
        for receiver in $(receivers all); do
            printf '%s\n' "$receiver $(system_identifier "$receiver")"
        done
        ;;
    *)
        head -n 99999 $files
        ;;
    esac 2>/dev/null
    [ "$1" = clock ] || for observer in $observers; do
        $observer </dev/null 2>/dev/null
    done
}
