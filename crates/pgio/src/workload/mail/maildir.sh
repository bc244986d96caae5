# MARK DOMAIN DIRECTORY...: what lies in new/ and cur/ of these mail directories and has the header MARK
# and an id that ends with DOMAIN. Of each: its id, its file, a tab, its text's sum; then it is removed.
# The text is what follows the header, with bare line feeds.
set -eu
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/sbin:/sbin
mark=$1
domain=$2
shift 2
command -v awk >/dev/null || { echo "awk is missing" >&2; exit 1; }
command -v sha256sum >/dev/null || { echo "sha256sum is missing" >&2; exit 1; }
list=$(mktemp)
trap 'rm -f "$list"' EXIT
for place do
    for part in new cur; do
        [ -d "$place/$part" ] || continue
        find "$place/$part" -type f -exec awk -v mark="$mark:" -v domain="$domain" -v list="$list" '
            function over() {
                if (open) close("sha256sum")
                open = 0
            }
            FNR == 1 { over(); head = 1; marked = 0; id = "" }
            { sub(/\r$/, "") }
            head && $0 == "" {
                head = 0
                if (marked && substr(id, length(id) - length(domain) + 1) == domain) {
                    print FILENAME >>list
                    printf "%s %s\t", id, FILENAME
                    fflush()
                    open = 1
                }
                next
            }
            head && $1 == mark { marked = 1 }
            head && $1 == "Message-ID:" { id = $2; gsub(/[<>]/, "", id) }
            !head && open { print | "sha256sum" }
            END { over() }
        ' {} +
    done
done
if [ -s "$list" ]; then
    tr '\n' '\0' <"$list" | xargs -0 rm -f --
    for place do
        [ -d "$place" ] && { sync -f "$place" 2>/dev/null || sync; break; }
    done
fi
