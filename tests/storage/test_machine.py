"""How much memory there is, for the default of `storage.max_memory_bytes`."""

import asyncio
import os
from pathlib import Path

from crewel.storage.embedded import memory_bytes
from tests.storage.test_embedded import opened

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_container_has_less_than_its_machine(tmp_path: Path) -> None:
    limit, none = tmp_path / "memory.max", tmp_path / "other"
    limit.write_text("536870912\n")
    none.write_text("max\n")
    assert memory_bytes((limit, none, tmp_path / "missing")) == 536870912
    limit.write_text(str(MACHINE * 2))
    assert memory_bytes((limit,)) == MACHINE


async def test_the_stores_memory_is_bounded_by_default(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        found = await store.reader.config_get("maxmemory")
    assert int(found["maxmemory"]) == await asyncio.to_thread(memory_bytes) // 2
