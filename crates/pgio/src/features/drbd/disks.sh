# For drbd_disks.rs: prints the disks that DRBD is configured for, without symbolic links; prints nothing if
# DRBD is not installed. Read-only.
PATH=$PATH:/usr/sbin:/sbin
command -v drbdadm >/dev/null 2>&1 || exit 0
disks=$(drbdadm sh-ll-dev all) || exit
printf '%s\n' "$disks" | while read -r disk; do
    readlink -f -- "$disk"
done
exit 0
