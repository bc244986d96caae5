# Prints facts about the server's main process for survey.rs that only its owner may read: program,
# arguments, environment, log. A line break within a value is printed as byte 1. Read-only.
LC_ALL=C
export LC_ALL
each() { # KIND FILE: prints one fact for each value in the file; byte 0 ends a value
    tr '\n\000' '\001\n' <"$2" | while IFS= read -r value; do
        printf '%s %s\n' "$1" "$value"
    done
}
program=$(readlink "/proc/$1/exe") || exit 1
printf 'program %s\n' "$program"
[ -x "${program%/*}/pg_ctl" ] && echo pg_ctl
each argument "/proc/$1/cmdline"
each environment "/proc/$1/environ"
log=$(readlink "/proc/$1/fd/2") && printf 'log %s\n' "$log"
[ -f "$log" ] && [ ! -w "$log" ] && echo closed
exit 0
