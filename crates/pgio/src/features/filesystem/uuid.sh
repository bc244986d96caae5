# Tells the UUID of the file system on a device: as it is there, else as udev saw it, for those who may
# not read the device. Nothing where it is not known. Reads only.
PATH=$PATH:/usr/sbin:/sbin
device=$(readlink -e -- "$1") || exit 0
blkid -p -o value -s UUID -- "$device" 2>/dev/null && exit
for link in /dev/disk/by-uuid/*; do
    [ "$(readlink -e -- "$link")" = "$device" ] && printf '%s\n' "${link##*/}" && exit
done
exit 0
