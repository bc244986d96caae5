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

# Functions of observers that print a section in each sample.
observers=
