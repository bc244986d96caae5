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
    # A reader of mail moves files from one directory to the other: those are looked for again.
    for file do
        shift
        if [ -e "$file" ]; then set -- "$@" "$file"; else printf "%s\n" "$file" >>"$work/gone"; fi
    done
    [ $# -gt 0 ] || exit 0
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
                print FILENAME >(work "/names")
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
    '\'' "$@" || {
        # One that went while it was read takes those beside it along, to the next time.
        for file do
            [ -e "$file" ] || printf "%s\n" "$file" >>"$work/gone"
        done
        [ -s "$work/gone" ] || exit 1
        rm -rf "$work/texts" "$work/these" "$work/names"
        exit 0
    }
    if [ -e "$work/these" ]; then
        (cd "$work/texts" && sha256sum -- *) >"$work/sums"
        # Print only files that were removed here; a file moved meanwhile would be printed twice.
        tr "\n" "\0" <"$work/names" | xargs -0 sh -c '\''
            find "$@" -maxdepth 0 -delete -print 2>/dev/null || :'\'' sh >"$work/removed"
        paste "$work/these" "$work/sums" | awk -v removed="$work/removed" -v gone="$work/gone" '\''
            BEGIN { while ((getline name <removed) > 0) is[name] = 1 }
            { name = $0; sub(/^[^ ]* /, "", name); sub(/\t[^\t]*$/, "", name) }
            name in is { print; next }
            { print name >>gone }
        '\''
        cat "$work/removed" >>"$work/all"
    fi
    rm -rf "$work/texts" "$work/these" "$work/names"
'
places=$#
for place do
    for part in new cur; do
        if [ -d "$place/$part" ]; then set -- "$@" "$place/$part"; fi
    done
done
shift "$places"
[ $# -gt 0 ] || exit 0
round=0
while [ $((round += 1)) -le 20 ]; do
    rm -f "$work/gone"
    find "$@" -type f -print0 >"$work/found"
    xargs -0 -r -n 100 sh -c "$each" sh "$mark" "$domain" "$work" <"$work/found"
    [ -e "$work/gone" ] || break
done
if [ -e "$work/gone" ]; then
    printf '%s\n' "$(head -n 1 "$work/gone") cannot be removed, or its like is moved all the time: stop who reads this mail" >&2
    exit 1
fi
if [ -s "$work/all" ]; then
    sync -f "$1" 2>/dev/null || sync
fi
