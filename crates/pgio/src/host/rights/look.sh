# For rights.rs: prints the user, the effective capabilities, and the programs that can change the user.
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH
printf '%s\n' "uid $(id -u)"
printf '%s\n' "name $(id -un 2>/dev/null || id -u)"
while read -r name value _; do
    [ "$name" = CapEff: ] && printf '%s\n' "capabilities $value"
done </proc/self/status
for program in runuser setpriv su sudo; do
    command -v "$program" >/dev/null 2>&1 && printf '%s\n' "has $program"
done
exit 0
