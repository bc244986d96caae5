# Prints the state in postmaster.pid of the data directory $1, or `down` if its process does not
# exist, as after a crash. Read-only.
file=$1/postmaster.pid
pid=$(sed -n 1p "$file" 2>/dev/null)
at=$(readlink -f "/proc/${pid:-none}/cwd" 2>/dev/null)
if [ -n "$at" ] && [ "$at" = "$(readlink -f "$1")" ]; then
    sed -n 8p "$file"
else
    echo down
fi
exit 0
