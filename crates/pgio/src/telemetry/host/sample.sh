# The prelude: who and what samples. host.rs adds the loop around answer().
echo "self $$"
echo "hertz $(getconf CLK_TCK 2>/dev/null || echo 100)"
files="/proc/diskstats /proc/stat /proc/meminfo /proc/pressure/cpu /proc/pressure/io
    /proc/pressure/memory /proc/net/dev /proc/$$/stat"
# Over ssh the session's own sshd works for us too.
read -r parent </proc/$PPID/comm
case $parent in
sshd*)
    echo "sshd $PPID"
    files="$files /proc/$PPID/stat"
    ;;
esac

answer() {
    case $1 in
    clock)
        date +%s.%N
        ;;
    mark)
        # head names each file in front of its text, in one process.
        head -n 99999 $files
        echo '==> processes <=='
        cat /proc/[0-9]*/stat
        echo '==> walreceivers <=='
        grep -ls walreceiver /proc/[0-9]*/cmdline
        ;;
    *)
        head -n 99999 $files
        ;;
    esac 2>/dev/null
}
