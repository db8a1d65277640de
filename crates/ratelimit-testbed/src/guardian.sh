# Ends a process with all its children and removes its folder. Arguments: the process, the folder, the signal that it is
# asked to end with.
parent=$1 folder=$2 farewell=$3

children() {
    for stat in /proc/[0-9]*/stat; do
        # Number, name in parentheses (which may hold anything), state, parent.
        line=$(cat "$stat" 2> /dev/null) || continue
        set -- ${line##*) }
        [ "$2" != "$parent" ] || printf '%s ' "${line%% *}"
    done
}

if [ "$farewell" != 9 ]; then
    kill -CONT $(children) "$parent"
    kill -s "$farewell" "$parent"
    tries=25
    while [ $tries -gt 0 ] && kill -0 "$parent"; do
        sleep 0.2
        tries=$((tries - 1))
    done
fi
kill -STOP "$parent" # so that it starts no more
kill -KILL $(children) "$parent"
rm -rf -- "$folder" || { sleep 1; rm -rf -- "$folder"; } # the dying may write a last word
