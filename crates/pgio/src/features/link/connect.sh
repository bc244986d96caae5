# The time of a connection to address $1 at port $2, in microseconds, a line each of a few times. For
# bash, which makes connections itself.
said=$({ : 3<>"/dev/tcp/$1/$2"; } 2>&1)
# Refused is an answer, too; what cannot be reached at all gives none.
case $?:$said in
0:* | *refused*) ;;
*) exit ;;
esac
for attempt in 1 2 3 4 5 6 7; do
    begun=$EPOCHREALTIME
    # No subshell: to make one takes longer than a fast round trip.
    { : 3<>"/dev/tcp/$1/$2"; } 2>/dev/null
    ended=$EPOCHREALTIME
    echo $((${ended/./} - ${begun/./}))
done
