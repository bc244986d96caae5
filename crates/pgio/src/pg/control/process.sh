# Prints facts about the server's main process for survey.rs, starting from one of its sessions: its
# user and control group, and our own control group. One fact per line, preceded by its kind. Read-only.
# survey.rs adds postmaster.sh before it.
LC_ALL=C
export LC_ALL
main=$(postmaster_of "$1") || exit 0
printf '%s\n' "main $main"
printf '%s\n' "user $(stat -c '%u %g %U' "/proc/$main")"
while read -r line; do
    line=${line#*:}
    printf '%s\n' "group ${line#*:}"
done <"/proc/$main/cgroup"
while read -r line; do
    line=${line#*:}
    printf '%s\n' "here ${line#*:}"
done </proc/self/cgroup
exit 0
