# Prints the data directories of standbys on this host: the working directories of walreceivers;
# argument: their system identifier, or `all`. Read-only.
for process in $(receivers "$1"); do
    readlink "$process/cwd" 2>/dev/null
done
exit 0
