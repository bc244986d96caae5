# MARK DOMAIN DIRECTORY...: what lies in new/ and cur/ of these mail directories and has the header MARK
# and an id that ends with DOMAIN. Of each: its id, its file, a tab, its text's sum; then it is removed.
# The text is what follows the header, with bare line feeds.
#
# A hundred messages at a time: their texts are laid apart, so that they need one process for their sums,
# where a process each would take many times as long as the delivery.
set -eu
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/sbin:/sbin
mark=$1
domain=$2
shift 2
command -v awk >/dev/null || { echo "awk is missing" >&2; exit 1; }
command -v sha256sum >/dev/null || { echo "sha256sum is missing" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/all"

# shellcheck disable=SC2016  # expanded by that shell
each='
    set -eu
    mark=$1; domain=$2; work=$3; shift 3
    mkdir "$work/texts"
    awk -v mark="$mark:" -v domain="$domain" -v work="$work" '\''
        function over() {
            if (open) close(text)
            open = 0
        }
        FNR == 1 { over(); head = 1; marked = 0; id = "" }
        { sub(/\r$/, "") }
        head && $0 == "" {
            head = 0
            if (marked && substr(id, length(id) - length(domain) + 1) == domain) {
                print FILENAME >>(work "/all")
                print id " " FILENAME >(work "/these")
                text = sprintf("%s/texts/%06d", work, ++count)
                # Made here: a text of which nothing is left has a sum as well.
                printf "" >text
                open = 1
            }
            next
        }
        head && $1 == mark { marked = 1 }
        head && $1 == "Message-ID:" { id = $2; gsub(/[<>]/, "", id) }
        !head && open { print >text }
        END { over() }
    '\'' "$@"
    if [ -e "$work/these" ]; then
        (cd "$work/texts" && sha256sum -- *) >"$work/sums"
        paste "$work/these" "$work/sums"
    fi
    rm -rf "$work/texts" "$work/these"
'
places=$#
for place do
    for part in new cur; do
        if [ -d "$place/$part" ]; then set -- "$@" "$place/$part"; fi
    done
done
shift "$places"
[ $# -gt 0 ] || exit 0
find "$@" -type f -print0 >"$work/found"
xargs -0 -r -n 100 sh -c "$each" sh "$mark" "$domain" "$work" <"$work/found"
if [ -s "$work/all" ]; then
    tr '\n' '\0' <"$work/all" | xargs -0 rm -f --
    sync -f "$1" 2>/dev/null || sync
fi
