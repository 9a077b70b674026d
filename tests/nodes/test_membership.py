"""What a node forgets of the others."""

from __future__ import annotations

import pytest

from crewel.qos.names import group_queue
from crewel.settings import Settings, load
from crewel.storage import shared_queue_store
from crewel.storage.store import Store
from tests.nodes.test_forwarding_cost import linked

QUEUE = group_queue("/jobs", "workers")


@pytest.fixture
def settings() -> Settings:
    """Those of a node; reading them looks at files, which must not happen inside the event loop."""
    return load(None, ["cluster.enabled=true", "storage.url=redis://127.0.0.1:1"])


@pytest.mark.parametrize("joins", [False, True])
async def test_a_group_stays_known_whose_member_joins_while_the_store_is_asked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    async with linked(settings) as (first, second, ends):
        second.membership.bus.wants(QUEUE)
        ends.carry()
        groups, ended = first.broker.addressing.groups, list[str]()
        monkeypatch.setattr(first.broker.addressing.shared_queues, "end_queue", ended.append)
        assert QUEUE in groups.elsewhere

        async def has_members(_store: Store, _queue: str) -> bool:
            if joins:
                second.membership.bus.wants(QUEUE)
                ends.carry()
            return False

        monkeypatch.setattr(shared_queue_store, "has_members", has_members)
        await first.membership.forget_groups()
        assert (QUEUE in groups.elsewhere, ended) == (joins, [] if joins else [QUEUE])
