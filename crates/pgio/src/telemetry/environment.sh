# Prints settings that must not change during a trial; arguments are block devices. Read-only.
LC_ALL=C
export LC_ALL

show() { # NAME FILE: prints the first line of a readable file
    [ -r "$2" ] && read -r value 2>/dev/null <"$2" && echo "$1 $value"
}

show kernel /proc/sys/kernel/osrelease
show governor /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
show transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
for device; do
    show "scheduler $device" "/sys/block/$device/queue/scheduler"
done
echo mounts
cat /proc/self/mountinfo
# DRBD's active configuration without defaults, except for options that experiments change. Names
# and options may require root.
if [ -r /proc/drbd ]; then
    PATH=$PATH:/usr/sbin:/sbin
    echo '==> drbd <=='
    sed -n 's/^version: \([^ ]*\).*/module \1/p' /proc/drbd
    show='show --show-defaults'
    { drbdsetup $show || sudo -n drbdsetup $show; } </dev/null 2>/dev/null | sed -E \
        '/^ *(protocol|al-extents|al-updates|disk-barrier|disk-flushes|md-flushes)[[:space:]]/!{/#.*default$/d;}'
fi
