#!/bin/sh
# Starts one sentinel of the profile `cluster`: `sentinel.sh NAME PRIMARY`. The configuration is written once, and the sentinel
# keeps in it which store is the primary.
set -eu
name=$1
primary=$2
file=${STORE_DIR:-/data}/sentinel.conf
if [ ! -f "$file" ]; then
  {
    echo "dir ${STORE_DIR:-/data}"
    echo "port ${STORE_PORT:-26379}"
    echo 'protected-mode no'
    echo 'sentinel resolve-hostnames yes'
    echo 'sentinel announce-hostnames yes'
    echo "sentinel announce-ip $name"
    echo "sentinel monitor crewel $primary ${PRIMARY_PORT:-6379} 2"
    echo 'sentinel down-after-milliseconds crewel 3000'
    echo 'sentinel failover-timeout crewel 10000'
  } > "$file"
fi
exec valkey-sentinel "$file"
