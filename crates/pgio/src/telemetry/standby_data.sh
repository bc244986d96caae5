# Prints the data directories of standbys on this host: the working directories of walreceivers;
# argument: their system identifier, or `all`. Read-only.
for process in $(receivers "$1"); do
    directory=$(readlink "$process/cwd" 2>/dev/null) || continue
    # A line break would begin another one.
    case $directory in
    *'
'*) ;;
    *) printf '%s\n' "$directory" ;;
    esac
done
exit 0
