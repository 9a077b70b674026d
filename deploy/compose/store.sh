#!/bin/sh
# Starts one store of the profile `cluster`: `store.sh NAME [PRIMARY]`. With PRIMARY, it begins as a replica of that.
# The configuration is written once: afterwards, the sentinels change it when another store becomes the primary.
set -eu
name=$1
primary=${2:-}
file=${STORE_DIR:-/data}/store.conf
port=${STORE_PORT:-6379}
if [ ! -f "$file" ]; then
  {
    echo "dir ${STORE_DIR:-/data}"
    echo "port $port"
    echo "replica-announce-ip $name"
    echo 'appendonly yes'
    echo 'appendfsync always'
    echo 'save ""'
    echo 'maxmemory-policy noeviction'
    echo 'protected-mode no'
    # Without a replica the primary takes no write: else one that is cut off would take what is lost afterwards.
    echo 'min-replicas-to-write 1'
    echo 'min-replicas-max-lag 2'
    # After a fail-over the new primary takes no write before a replica has its copy: that begins at once.
    echo 'repl-diskless-sync-delay 0'
    echo 'repl-ping-replica-period 1'
    if [ -n "$primary" ]; then echo "replicaof $primary ${PRIMARY_PORT:-6379}"; fi
  } > "$file"
fi
exec valkey-server "$file"
