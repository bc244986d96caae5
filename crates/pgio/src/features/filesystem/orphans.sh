# Prints number and name of each program that changes a file system and has the argument $1. In /proc a NUL byte ends
# each argument, so that a path may hold spaces. Reads only; see tools.rs.
LC_ALL=C
export LC_ALL
for directory in /proc/[0-9]*; do
    read -r name <"$directory/comm" || continue
    case $name in
    mount | umount | wipefs | cp | mkfs.* | mke2fs) ;;
    *) continue ;;
    esac
    if tr '\0' '\n' <"$directory/cmdline" | grep -qxF -e "$1"; then
        printf '%s\n' "${directory#/proc/} ($name)"
    fi
done 2>/dev/null
exit 0
