# DRBD's active configuration without defaults, except for options that experiments change. Names
# and options may require root.
if [ -r /proc/drbd ]; then
    PATH=$PATH:/usr/sbin:/sbin
    sed -n 's/^version: \([^ ]*\).*/module \1/p' /proc/drbd
    show='show --show-defaults'
    { drbdsetup $show || sudo -n drbdsetup $show; } </dev/null 2>/dev/null | sed -E \
        '/^ *(protocol|al-extents|al-updates|disk-barrier|disk-flushes|md-flushes)[[:space:]]/!{/#.*default$/d;}'
fi
