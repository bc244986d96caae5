# Prelude of the flush probe; the caller sets $directory. The file is unlinked before it has a size,
# so nothing remains whatever happens to this shell.
#
# The directory belongs to another user, who could replace a file whose name is known by a link.
# With -C the shell itself creates the file, under a name that cannot be guessed.
umask 077
file=$(mktemp "$directory/.pgio-probe.XXXXXX") || exit 1
rm -f "$file"
file=$(mktemp -u "$directory/.pgio-probe.XXXXXXXXXX") || exit 1
set -C
exec 3>"$file" || exit 1
set +C
rm -f "$file"
# Allocate the blocks first, like those of a recycled WAL segment.
dd if=/dev/zero of=/proc/self/fd/3 bs=8192 count=256 conv=notrunc,fsync >/dev/null || exit 1

writes() { # COUNT
    dd if=/dev/zero of=/proc/self/fd/3 bs=8192 count="$1" oflag=dsync conv=notrunc 2>&1
}
