"""What a store answers to INFO, as far as its server needs it."""

from __future__ import annotations

from crewel.settings.store_location import Place


class StoreInfo:
    """What INFO says, as far as it matters here."""

    def __init__(self, info: bytes) -> None:
        """`info` is the store's answer to INFO; sections that it lacks are zero or empty here."""
        pairs = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
        self._rows = {name: value for name, colon, value in pairs if colon}

    @property
    def kind(self) -> str:
        """`valkey` or `redis`."""
        return "valkey" if "valkey_version" in self._rows else "redis"

    @property
    def version(self) -> str:
        """Such as 9.1.2."""
        return self._rows.get("valkey_version") or self._rows.get("redis_version", "0")

    @property
    def run_id(self) -> str:
        """Differs between two runs of a store."""
        return self._rows.get("run_id", "")

    @property
    def history(self) -> str:
        """Names the sequence of writes that this server and its replicas share; a promoted replica begins another one."""
        return self._rows.get("master_replid", "")

    @property
    def has_changed_role(self) -> bool:
        """Whether it was a replica before its history began, or has been promoted since."""
        return bool(self._rows.get("master_replid2", "").strip("0"))

    @property
    def replicas(self) -> int:
        """How many replicas are connected."""
        return int(self._rows.get("connected_slaves", 0))

    @property
    def replicas_at_hand(self) -> list[Place]:
        """Where the replicas are that have all data and have confirmed something in the last second or two."""
        found = []
        for number in range(self.replicas):
            row = dict(each.split("=", 1) for each in self._rows.get(f"slave{number}", "").split(",") if "=" in each)
            if row.get("state") == "online" and row.get("lag") in ("0", "1"):
                found.append((row["ip"], int(row["port"])))
        return found

    @property
    def requires_replicas(self) -> bool:
        """Whether it takes no write without a replica that has confirmed lately (`min-replicas-to-write`)."""
        return "min_slaves_good_slaves" in self._rows

    @property
    def is_loading(self) -> bool:
        """Whether it still reads its file."""
        return self._rows.get("loading") == "1"

    @property
    def is_replica(self) -> bool:
        """Whether it takes no writes, because it follows another."""
        return self._rows.get("role") == "slave"

    @property
    def is_linked(self) -> bool:
        """Whether it has a connection to its primary, and all data of that."""
        return self._rows.get("master_link_status") == "up"

    @property
    def appends(self) -> bool:
        """Whether it has an append-only file."""
        return self._rows.get("aof_enabled") == "1"

    @property
    def policy(self) -> str:
        """What it does when its memory is full: noeviction, or the name of what it evicts."""
        return self._rows.get("maxmemory_policy", "")

    @property
    def max_memory(self) -> int:
        """Bytes; 0 is no limit."""
        return int(self._rows.get("maxmemory", 0))

    @property
    def used_memory(self) -> int:
        """Bytes that count towards the limit."""
        return int(self._rows.get("used_memory", 0)) - int(self._rows.get("mem_not_counted_for_evict", 0))

    @property
    def has_write_error(self) -> bool:
        """Whether its last write to its file has failed."""
        return self._rows.get("aof_last_write_status") == "err"

    @property
    def rewrite_failed(self) -> bool:
        """Whether its last rewrite of its file has failed."""
        return self._rows.get("aof_last_bgrewrite_status") == "err"

    @property
    def is_rewriting(self) -> bool:
        """Whether it rewrites its file at this moment, or is about to."""
        return "1" in (self._rows.get("aof_rewrite_in_progress"), self._rows.get("aof_rewrite_scheduled"))

    @property
    def busy_s(self) -> float:
        """Seconds of processor time that its main thread has had; of a store that does not tell that, all of its threads."""
        rows, kinds = self._rows, ("user", "sys")
        main = [rows.get(f"used_cpu_{kind}_main_thread") for kind in kinds]
        every = [rows.get(f"used_cpu_{kind}", "0") for kind in kinds]
        return sum(float(one or all_threads) for one, all_threads in zip(main, every, strict=True))

    @property
    def disk_s(self) -> float:
        """Seconds in which its main thread has written to its file, with the time in which it has waited for the disk; NaN for
        a store that does not tell."""
        return float(self._rows.get("eventloop_duration_aof_sum", "nan")) / 1e6

    @property
    def steps(self) -> int:
        """How many scripts it has been asked for by their digest."""
        first = self._rows.get("cmdstat_evalsha", "").partition(",")[0]
        return int(first.removeprefix("calls=") or 0)

    @property
    def file_size(self) -> int:
        """Bytes of its file; 0 if it has none."""
        return int(self._rows.get("aof_current_size", 0))
