# The prelude of the flush probe; $directory is set before. The file has no name from the first
# moment that it has a size, so it is gone whatever happens to this shell.
#
# The directory is another user's, who could put a link in the place of a file that is opened by a name
# which he has seen: with -C the shell makes the file itself, under a name that nobody knows yet.
umask 077
file=$(mktemp "$directory/.pgio-probe.XXXXXX") || exit 1
rm -f "$file"
file=$(mktemp -u "$directory/.pgio-probe.XXXXXXXXXX") || exit 1
set -C
exec 3>"$file" || exit 1
set +C
rm -f "$file"
# Blocks that exist already, as those of a recycled WAL segment do.
dd if=/dev/zero of=/proc/self/fd/3 bs=8192 count=64 conv=notrunc,fsync >/dev/null || exit 1

writes() { # COUNT
    dd if=/dev/zero of=/proc/self/fd/3 bs=8192 count="$1" oflag=dsync conv=notrunc 2>&1
}
