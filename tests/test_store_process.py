"""How a store of the tests ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ports import free_port
from tests.store_process import StoreProcess, until

pytestmark = pytest.mark.store


def test_one_that_has_just_become_a_replica_ends_when_its_file_is_written(tmp_path: Path) -> None:
    """Until then Redis 7 refuses SIGTERM, and does not end for it later either. Valkey ends."""
    for name in ("primary", "replica"):
        (tmp_path / name).mkdir()
    port = free_port()
    primary = StoreProcess(tmp_path / "primary", port=str(port))
    with primary.client() as client:
        client.mset({str(number): "x" for number in range(20)})
    # Its file takes a second: so many microseconds for each key.
    replica = StoreProcess(tmp_path / "replica", port="0", replicaof=f"127.0.0.1 {port}", rdb_key_save_delay="50000")
    with replica.client() as client:
        until(lambda: client.info("replication")["master_link_status"] == "up")
    replica.close()
    primary.close()
    assert not replica.socket.exists()
