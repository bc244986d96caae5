# What must not change while a trial runs; arguments are block devices. Reads only.
LC_ALL=C
export LC_ALL

tell() { # NAME FILE: its first line, where it can be read
    [ -r "$2" ] && read -r value 2>/dev/null <"$2" && echo "$1 $value"
}

tell kernel /proc/sys/kernel/osrelease
tell governor /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
tell transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
for device; do
    tell "scheduler $device" "/sys/block/$device/queue/scheduler"
done
echo mounts
cat /proc/self/mountinfo
# DRBD as the kernel runs it, less what is a default, but for what experiments change; names and
# options may be for root.
if [ -r /proc/drbd ]; then
    PATH=$PATH:/usr/sbin:/sbin
    echo '==> drbd <=='
    sed -n 's/^version: \([^ ]*\).*/module \1/p' /proc/drbd
    show='show --show-defaults'
    { drbdsetup $show || sudo -n drbdsetup $show; } </dev/null 2>/dev/null | sed -E \
        '/^ *(protocol|al-extents|al-updates|disk-barrier|disk-flushes|md-flushes)[[:space:]]/!{/#.*default$/d;}'
fi
