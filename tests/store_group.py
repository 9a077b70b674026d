"""Stores of several processes on loopback: a primary with replicas and the sentinels that watch them, and a cluster."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.ports import free_ports
from tests.store_process import LIMIT_S, StoreProcess, until

SERVICE: Final = "crewel-store"
DOWN_AFTER_MS: Final = 1000
"""Milliseconds after which the sentinels hold a server that does not answer for dead."""
_QUORUM: Final = 2
_SLOTS: Final = 16384


def client_at(port: int) -> redis.Redis:
    """Return a client of the process that listens there."""
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), socket_timeout=LIMIT_S, decode_responses=True)


def info(process: StoreProcess) -> dict[str, Any]:
    """Return what a server says of its replication."""
    with process.client() as client:
        return dict(client.info("replication"))


class Sentinel(StoreProcess):
    """One sentinel of the service."""

    def __init__(self, directory: Path, port: int, primary: int) -> None:
        """`port` is its own, `primary` that of the server that it watches at first."""
        self.port = port
        self._file = directory / "sentinel.conf"
        self._file.write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} {_QUORUM}\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 6000\n"
        )
        super().__init__(directory, port=str(port))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch([str(self._file), "--sentinel", "--port", str(self.port), "--dir", str(self.directory)])

    def client(self) -> redis.Redis:
        """Return a client for the commands of a sentinel."""
        return client_at(self.port)

    def known(self) -> dict[str, Any]:
        """Return what it knows of the service."""
        with self.client() as client:
            state: Any = client.sentinel_master(SERVICE)
        return dict(state)

    def primary(self) -> int:
        """Return the port of the server that it takes for the primary."""
        return int(self.known()["port"])


class WatchedStore:
    """A primary with two replicas, and three sentinels. Made, it is ready."""

    def __init__(self, directory: Path, **options: str) -> None:
        """`options` are those of each server, with _ for -."""
        self.servers: dict[int, StoreProcess] = {}
        self.sentinels: list[Sentinel] = []
        with ExitStack() as failed:
            failed.callback(self.close)
            self._begin(directory, options)
            failed.pop_all()

    def _begin(self, directory: Path, options: dict[str, str]) -> None:
        first, *ports = free_ports(6)
        common = {"min_replicas_to_write": "1", "min_replicas_max_lag": "2", "repl_timeout": "5"}
        given = common | {"repl_ping_replica_period": "1"} | options
        for port in (first, *ports[:2]):
            place = directory / f"server{port}"
            place.mkdir()
            follows = {} if port == first else {"replicaof": f"127.0.0.1 {first}"}
            self.servers[port] = StoreProcess(place, port=str(port), **given, **follows)
        until(lambda: self._good_replicas(first) == 2)
        for port in ports[2:]:
            place = directory / f"sentinel{port}"
            place.mkdir()
            self.sentinels.append(Sentinel(place, port, first))
        until(lambda: all(self._knows_all(each) for each in self.sentinels), self._seen)

    @property
    def url(self) -> str:
        """The address for `storage.url`."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    @property
    def primary(self) -> StoreProcess:
        """The server that most sentinels take for the primary."""
        ports = [each.primary() for each in self.sentinels]
        return self.servers[max(ports, key=ports.count)]

    @property
    def replicas(self) -> list[StoreProcess]:
        """The others."""
        primary = self.primary
        return [each for each in self.servers.values() if each is not primary]

    def fail_over(self) -> StoreProcess:
        """Let the sentinels promote a replica, as an operator does, and return it when it is the primary."""
        before = self.primary
        until(lambda: self._has_left(before))
        return self.promoted_after(before)

    def _has_left(self, before: StoreProcess) -> bool:
        """Whether the first sentinel has promoted another server. It gives up after `failover-timeout`, or where no replica is
        in a good state: then it is asked to begin."""
        with self.sentinels[0].client() as client:
            state: Any = client.sentinel_master(SERVICE)
            if self.servers[int(state["port"])] is not before:
                return True
            if "failover_in_progress" not in state["flags"]:
                with suppress(redis.ResponseError):  # NOGOODSLAVE
                    client.execute_command("SENTINEL", "FAILOVER", SERVICE)
        return False

    def promoted_after(self, before: StoreProcess) -> StoreProcess:
        """Wait until all sentinels take another server for the primary, and return that."""
        until(lambda: len({each.primary() for each in self.sentinels}) == 1 and self.primary is not before)
        after = self.primary
        until(lambda: info(after)["role"] == "master")
        return after

    def close(self) -> None:
        """End all of them."""
        for each in (*self.sentinels, *self.servers.values()):
            each.close()

    def _good_replicas(self, port: int) -> int:
        return int(info(self.servers[port]).get("min_slaves_good_slaves", info(self.servers[port])["connected_slaves"]))

    def _seen(self) -> str:
        """What the sentinels know, what the servers report of themselves, and the last lines of all."""
        lines = [f"{each.port}: {each.known()}" for each in self.sentinels]
        lines += [f"{port}: {info(each)}" for port, each in self.servers.items()]
        lines += [(each.directory / "log").read_text()[-2000:] for each in (*self.sentinels, *self.servers.values())]
        return "\n".join(lines)

    def _knows_all(self, sentinel: Sentinel) -> bool:
        known = sentinel.known()
        return bool(known["num-other-sentinels"] == 2 and known["num-slaves"] == 2)


class ClusterStore:
    """A cluster of three primaries, one of which has a replica: that of `key`. Made, it is ready."""

    def __init__(self, directory: Path, key: str, **options: str) -> None:
        """`key` is any key of the store that is to be in the part that has a replica."""
        self.servers: dict[int, StoreProcess] = {}
        with ExitStack() as failed:
            failed.callback(self.close)
            self._begin(directory, key, options)
            failed.pop_all()

    def _begin(self, directory: Path, key: str, options: dict[str, str]) -> None:
        given = free_ports(8)
        ports = given[:4]
        self._buses = dict(zip(ports, given[4:], strict=True))
        common = {"cluster_enabled": "yes", "cluster_node_timeout": "1000", "cluster_require_full_coverage": "no"}
        common |= {"min_replicas_max_lag": "2", "repl_ping_replica_period": "1", "cluster_config_file": "nodes.conf"}
        for port, bus in self._buses.items():
            place = directory / f"node{port}"
            place.mkdir()
            self.servers[port] = StoreProcess(place, port=str(port), cluster_port=str(bus), **(common | options))
        *self._primaries, replica = ports
        for number, port in enumerate(self._primaries):
            first, beyond = number * _SLOTS // 3, (number + 1) * _SLOTS // 3
            self._ask(port, "CLUSTER", "ADDSLOTSRANGE", first, beyond - 1)
            self._ask(port, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for port in ports[1:]:
            self._ask(port, "CLUSTER", "MEET", "127.0.0.1", ports[0], self._buses[ports[0]])
        until(lambda: all(self._sees_all(port) for port in ports))
        with client_at(ports[0]) as client:
            slot = int(client.execute_command("CLUSTER", "KEYSLOT", key))
        self.first = self._primaries[min(slot * 3 // _SLOTS, 2)]
        self._ask(replica, "CLUSTER", "REPLICATE", self._ask(self.first, "CLUSTER", "MYID"))
        self.replica = replica
        until(lambda: info(self.servers[replica]).get("master_link_status") == "up")
        self._ask(self.first, "CONFIG", "SET", "min-replicas-to-write", 1)
        self._ask(replica, "CONFIG", "SET", "min-replicas-to-write", 1)
        until(lambda: int(info(self.servers[self.first])["min_slaves_good_slaves"]) == 1)

    @property
    def url(self) -> str:
        """The address for `storage.url`."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self._primaries)

    def fail_over(self) -> None:
        """Let the replica take over from its primary, which knows of it and loses nothing."""
        primary = self._ask(self.first, "CLUSTER", "MYID")
        # It ignores a replica that it does not know yet.
        until(lambda: self._ask(self.first, "CLUSTER", "REPLICAS", primary))
        self._ask(self.replica, "CLUSTER", "FAILOVER")
        until(lambda: info(self.servers[self.replica])["role"] == "master")
        self.first, self.replica = self.replica, self.first
        until(lambda: int(info(self.servers[self.first])["min_slaves_good_slaves"]) == 1)

    def close(self) -> None:
        """End all of them."""
        for each in self.servers.values():
            each.close()

    def _ask(self, port: int, *words: str | int) -> Any:
        with client_at(port) as client:
            return client.execute_command(*words)

    def _sees_all(self, port: int) -> bool:
        with client_at(port) as client:
            known = client.execute_command("CLUSTER", "INFO")
        said = known if isinstance(known, dict) else dict(line.split(":") for line in known.split())
        return bool(said["cluster_state"] == "ok" and int(said["cluster_known_nodes"]) == len(self.servers))
