# DRBD, if present. Module 8.4 reports everything in /proc/drbd, module 9 only through drbdsetup.
# Names and disks may require root.
if [ -r /proc/drbd ]; then
    PATH=$PATH:/usr/sbin:/sbin
    files="$files /proc/drbd"
    if ! grep -q '^version: 8' /proc/drbd; then
        drbd='drbdsetup status --json --statistics'
        $drbd </dev/null >/dev/null 2>&1 || drbd="sudo -n $drbd"
        drbd_status() {
            echo '==> drbd <=='
            $drbd
        }
        observers="$observers drbd_status"
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
