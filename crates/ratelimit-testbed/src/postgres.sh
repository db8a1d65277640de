# Makes the files of a private PostgreSQL server in $PGDATA. Arguments: the folder of its programs, the password of the user
# postgres; without one everybody on the loopback interface is let in. With PRIMARY_HOST it is a standby of the server there.
set -eu
if [ -n "${PRIMARY_HOST:-}" ]; then
    umask 077
    exec "$1/pg_basebackup" --host="$PRIMARY_HOST" --port="$PRIMARY_PORT" --username=postgres --no-password \
        --pgdata="$PGDATA" --write-recovery-conf --checkpoint=fast --no-sync
fi
method=trust
if [ -n "$2" ]; then
    method=scram-sha-256
fi
umask 077
printf '%s\n' "$2" > "$PGDATA.password"
set -- "$1" $([ "$method" = trust ] || echo "--pwfile=$PGDATA.password")
programs=$1
shift
"$programs/initdb" --username=postgres --auth="$method" --encoding=UTF8 --locale=C --no-sync "$@" > /dev/null
rm "$PGDATA.password"
printf "unix_socket_directories = ''\n" >> "$PGDATA/postgresql.conf"
if [ -n "${SERVER_KEY:-}" ]; then
    # The key must be the server's own, and nobody else's to read.
    cp "$SERVER_KEY" "$PGDATA/server.key"
    echo 'hostssl all all all trust clientcert=verify-ca' > "$PGDATA/pg_hba.conf"
fi
