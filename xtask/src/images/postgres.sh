#!/bin/sh
# Starts PostgreSQL like the start script of the official image: creates the files in $PGDATA if there are none, uses
# POSTGRES_PASSWORD and POSTGRES_HOST_AUTH_METHOD, and does not run as root.
set -eu
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PGDATA="${PGDATA:-/var/lib/postgresql/data}"
umask 077
mkdir -p "$PGDATA"
chown postgres "$PGDATA"
run() {
    setpriv --reuid=postgres --regid=postgres --init-groups "$@"
}
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=$(mktemp)
    printf '%s\n' "${POSTGRES_PASSWORD:-none}" > "$password"
    chown postgres "$password"
    run initdb --username=postgres --pwfile="$password" --auth-local=trust --auth-host=scram-sha-256 --no-sync > /dev/null
    rm "$password"
    echo "host all all all ${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >> "$PGDATA/pg_hba.conf"
    # Only the line that was just added applies to the network, as in the official image.
    sed -i '/^host.*\(127\.0\.0\.1\|::1\)/d' "$PGDATA/pg_hba.conf"
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups "$(command -v /usr/lib/postgresql/*/bin/postgres)" "$@"
