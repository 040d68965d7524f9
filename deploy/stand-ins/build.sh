#!/usr/bin/env bash
# Builds images under the names of the base images, where no registry can be reached:
#   python:3.13-slim-trixie, nats:2.15-alpine, pgvector/pgvector:pg17
# from Debian's packages (mmdebstrap) and the NATS server of `make setup`. They have the same programs in the
# same versions and behave alike as far as our files use them; they are not those images, and nobody should
# deploy them. Needs root, mmdebstrap and Docker; FOLDER keeps the Debian trees for the next time.
set -euo pipefail
cd "$(dirname "$0")"
root=$(git rev-parse --show-toplevel)
folder=${1:?usage: build.sh FOLDER}
mkdir -p "$folder"

tree() { # NAME PACKAGES: a minimal Debian with packages, as a tar file
    [ -s "$folder/$1.tar" ] || {
        nice mmdebstrap --quiet --format=tar --variant=minbase --include="$2" \
            --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' trixie "$folder/$1.part" \
            "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" && mv "$folder/$1.part" "$folder/$1.tar"
    }
}

image() { # NAME CONTEXT: an image from a folder with a Dockerfile
    docker build --quiet --network host --tag "$1" "$2"
}

build=$(mktemp -d "$folder/build.XXXX")
trap 'rm -rf "$build"' EXIT
tree python python3,python3-venv,python3-pip,libpython3-dev,ca-certificates,netbase,tzdata
tree postgres postgresql-17,postgresql-17-pgvector,libnss-wrapper

mkdir "$build/python" "$build/postgres" "$build/nats"
ln "$folder/python.tar" "$build/python/rootfs.tar" 2>/dev/null || cp "$folder/python.tar" "$build/python/rootfs.tar"
mkdir "$build/python/certificates" # of a network that looks into TLS: PyPI is asked through it
cp /usr/local/share/ca-certificates/*.crt "$build/python/certificates/" 2>/dev/null || true
cat > "$build/python/Dockerfile" <<'EOF'
FROM scratch
ADD rootfs.tar /
COPY certificates /usr/local/share/ca-certificates
RUN update-ca-certificates >/dev/null && ln -s /usr/bin/python3 /usr/local/bin/python3 \
    && ln -s /usr/bin/python3 /usr/local/bin/python && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
CMD ["python3"]
EOF
image python:3.13-slim-trixie "$build/python"

ln "$folder/postgres.tar" "$build/postgres/rootfs.tar" 2>/dev/null || cp "$folder/postgres.tar" "$build/postgres/rootfs.tar"
cp postgres-entrypoint.sh "$build/postgres/docker-entrypoint.sh"
cat > "$build/postgres/Dockerfile" <<'EOF'
FROM scratch
ADD rootfs.tar /
COPY docker-entrypoint.sh /usr/local/bin/
RUN chmod 755 /usr/local/bin/docker-entrypoint.sh && mkdir -p /docker-entrypoint-initdb.d \
    && install -d -m 3777 -o postgres -g postgres /var/run/postgresql && rm -rf /var/lib/postgresql/17
ENV PATH=/usr/lib/postgresql/17/bin:$PATH LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
STOPSIGNAL SIGINT
EOF
image pgvector/pgvector:pg17 "$build/postgres"

cp "$(readlink -f "$root/.venv/bin/nats-server")" "$build/nats/nats-server"
busybox=$(dpkg-query -L busybox-static 2>/dev/null | grep -m1 'bin/busybox$') || {
    echo "busybox-static is missing: apt-get install busybox-static" >&2
    exit 1
}
cp "$busybox" "$build/nats/busybox"
cat > "$build/nats/Dockerfile" <<'EOF'
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
COPY nats-server /usr/local/bin/nats-server
ENV PATH=/usr/local/bin:/bin
ENTRYPOINT ["nats-server"]
EOF
image nats:2.15-alpine "$build/nats"
