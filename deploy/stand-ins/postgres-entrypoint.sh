#!/bin/sh
# As far as docker-compose.yml uses it, what the entry point of the official Postgres images does: makes the
# database of POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB in an empty PGDATA, runs
# /docker-entrypoint-initdb.d/*.sql, and becomes the server.
set -eu
if ! getent passwd "$(id -u)" >/dev/null; then # initdb wants a name for every user
    passwd=$(mktemp) && group=$(mktemp)
    echo "postgres:x:$(id -u):$(id -g):Postgres:$PGDATA:/bin/false" > "$passwd"
    echo "postgres:x:$(id -g):" > "$group"
    export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD="$passwd" NSS_WRAPPER_GROUP="$group"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA" && chmod 700 "$PGDATA"
    secret=$(mktemp) && printf '%s\n' "$POSTGRES_PASSWORD" > "$secret"
    initdb --username="$POSTGRES_USER" --pwfile="$secret" --auth-local=trust --auth-host=scram-sha-256 >/dev/null
    rm "$secret"
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    export PGPASSWORD="$POSTGRES_PASSWORD"
    shift
    pg_ctl -D "$PGDATA" -o "$(printf "'%s' " "$@") -c listen_addresses=''" -w start >/dev/null
    [ "$POSTGRES_DB" = postgres ] || createdb -h /var/run/postgresql -U "$POSTGRES_USER" "$POSTGRES_DB"
    for file in /docker-entrypoint-initdb.d/*.sql; do
        psql -h /var/run/postgresql -v ON_ERROR_STOP=1 -q -U "$POSTGRES_USER" -d "$POSTGRES_DB" -f "$file"
    done
    pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
    unset PGPASSWORD
    set -- postgres "$@"
fi
unset LD_PRELOAD
exec "$@"
