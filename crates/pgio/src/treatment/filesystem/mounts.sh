# Tells what mounts.rs asks: all mounts, and what ext4 says of itself by device. Reads only.
cat /proc/self/mountinfo
for list in /proc/fs/ext4/*/options; do
    name=${list%/options}
    if read -r device <"/sys/class/block/${name##*/}/dev"; then
        echo "ext4 $device"
        cat "$list"
    fi
done 2>/dev/null
exit 0
