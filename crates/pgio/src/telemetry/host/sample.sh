# Prelude: prints facts about the host and its sampling processes. host.rs adds receivers.sh before it
# and the loop around answer().
printf '%s\n' "self $$"
printf '%s\n' "hertz $(getconf CLK_TCK 2>/dev/null || echo 100)"
# The uptime dates the counters that follow it.
files="/proc/uptime /proc/diskstats /proc/stat /proc/meminfo /proc/pressure/cpu /proc/pressure/io
    /proc/pressure/memory /proc/net/dev /proc/$$/stat"
# Over ssh, the session's sshd is part of the sampling.
read -r parent </proc/$PPID/comm
case $parent in
sshd*)
    printf '%s\n' "sshd $PPID"
    files="$files /proc/$PPID/stat"
    ;;
esac

# DRBD, if present. Module 8.4 reports everything in /proc/drbd, module 9 only through drbdsetup.
# Names and disks may require root.
drbd=:
if [ -r /proc/drbd ]; then
    PATH=$PATH:/usr/sbin:/sbin
    files="$files /proc/drbd"
    if ! grep -q '^version: 8' /proc/drbd; then
        drbd='drbdsetup status --json --statistics'
        $drbd </dev/null >/dev/null 2>&1 || drbd="sudo -n $drbd"
    fi
    { drbdsetup show || sudo -n drbdsetup show; } </dev/null 2>/dev/null |
        while read -r word value last; do
            case $word$value in
            resource*) resource=${value#\"} resource=${resource%\"} ;;
            deviceminor) minor=${last%;} ;;
            disk\"*)
                disk=${value#\"} disk=$(readlink -f "${disk%\";}")
                printf '%s\n' "drbd $minor ${disk##*/} $resource"
                ;;
            esac
        done
fi

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
    case $1:$drbd in
    clock:* | *::) ;;
    *)
        echo '==> drbd <=='
        $drbd </dev/null 2>/dev/null
        ;;
    esac
}
