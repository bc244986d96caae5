# Prints the lines of a setting in a postgresql.auto.conf that ALTER SYSTEM wrote, or replaces them; arguments:
# file, name, and `replace` to replace them by the line on stdin, which may be empty. Only while the server is down.
set -e
conf=$1
prefix="$2 = "
if [ $# = 2 ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in "$prefix"*) printf '%s\n' "$line" ;; esac
    done <"$conf"
    exit
fi
IFS= read -r line_of_setting
new=$conf.pgio
trap 'rm -f -- "$new"' EXIT
# With its owner and rights; the contents follow.
cp -p -- "$conf" "$new"
while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    "$prefix"*)
        [ -z "$line_of_setting" ] || printf '%s\n' "$line_of_setting"
        line_of_setting=
        ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$conf" >"$new"
[ -z "$line_of_setting" ] || printf '%s\n' "$line_of_setting" >>"$new"
sync -- "$new"
mv -f -- "$new" "$conf"
sync -- "${conf%/*}"
