"""Filters of many sessions: evaluated once for all that are equal, in turns of the loop, in the order of the channel, and
within what an address may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from crewel.qos.filters import ACCOUNT_MINIMUM, ACCOUNT_STEPS, MAX_STEPS, Filter
from tests.broker.stored_world import Receiver, StoredWorld, data
from tests.broker.subscriptions.test_filter_failures import story
from tests.broker.world import Client

SESSIONS = 40
LONG = list(range(100, 300))


def costly(number: int, blanks: int = 0) -> str:
    """True for lists of more than one item; takes a step for each of them. Each number makes another one."""
    return f"length(data[?@ != `{-number}`]) > `1`" + " " * blanks


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each filter was evaluated."""
    counted: Counter[str] = Counter()
    accepts = Filter.accepts

    def count(self: Filter, document: Mapping[str, Any], steps: int = MAX_STEPS) -> bool:
        counted[self.text] += 1
        return accepts(self, document, steps)

    monkeypatch.setattr(Filter, "accepts", count)
    return counted


@pytest.fixture
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter is a portion of a turn, and a portion is a turn."""
    for module in ("fair_turns", "broker.subscriptions.options", "broker.durability.log_appender"):
        monkeypatch.setattr(f"crewel.{module}.PORTION_S", 0.0)
    monkeypatch.setattr("crewel.fair_turns.SLICE_S", 0.0)


def hearing(world: StoredWorld, *filters: str) -> list[Client]:
    """Sessions without acknowledgements, with a filter each."""
    clients = [Client(world).joined() for _ in filters]
    for client, text in zip(clients, filters, strict=True):
        assert client.say("/meta/subscribe", subscription="/a", ext={"subscribe": {"filter": text}})["successful"]
    return clients


def taken(client: Client) -> list[Any]:
    return story(client.connect(advice={"timeout": 0}).answer)


def test_filters_that_differ_in_blanks_are_evaluated_once(world: StoredWorld, evaluated: Counter[str]) -> None:
    clients = hearing(world, *(costly(1, number) for number in range(SESSIONS)))
    world.broker.publish("/a", LONG)
    world.settle()
    assert evaluated.total() == 1
    assert [taken(client) for client in clients] == [[len(LONG)]] * SESSIONS


@pytest.mark.usefixtures("_short_turns")
def test_messages_keep_their_order_while_filters_are_evaluated_in_turns(world: StoredWorld) -> None:
    world.broker.mailboxes.outbound.fan_outs.slice_s = 0.0
    plain = hearing(world, *(f"length(data) > `0` && sum(data) != `{number}`" for number in range(SESSIONS)))
    reliable = [Receiver(world).started() for _ in range(SESSIONS)]
    for number, receiver in enumerate(reliable):
        text = f"length(data) > `0` && sum(data) != `{number}`"
        assert receiver.say("/meta/subscribe", subscription="/a", ext={"subscribe": {"filter": text}})["successful"]
    other = Client(world).joined("/a")
    stored = []
    for number in range(SESSIONS):
        if number % 3:
            world.broker.publish("/a", [number])
        else:
            stored.append(world.loop.create_task(world.broker.publish_stored("/a", [number])))
    assert world.broker.mailboxes.outbound.fan_outs.pending
    for each in stored:
        world.wait(each)
    for _ in range(10):
        world.settle()
    assert not world.broker.mailboxes.outbound.fan_outs.pending
    everything = set(range(SESSIONS))
    transient = [number for number in range(SESSIONS) if number % 3]
    for number, client in enumerate([*plain, *reliable]):
        numbers = [each[0] for each in data_of(client)]
        assert set(numbers) == everything - {number % SESSIONS}, number
        assert [each for each in numbers if each % 3] == [each for each in transient if each != number % SESSIONS]
        assert [each for each in numbers if not each % 3] == sorted(each for each in numbers if not each % 3)
    assert {each[0] for each in data_of(other)} == everything


@pytest.mark.usefixtures("_short_turns")
def test_stored_messages_of_several_channels_reach_a_session_with_a_filter_in_their_order(world: StoredWorld) -> None:
    reliable = [Receiver(world).started("/b") for _ in range(SESSIONS)]
    for number, receiver in enumerate(reliable):
        text = f"length(data) > `0` && sum(data) != `{-number - 1}`"
        assert receiver.say("/meta/subscribe", subscription="/a", ext={"subscribe": {"filter": text}})["successful"]
    publish, task = world.broker.publish_stored, world.loop.create_task
    stored = [task(publish("/" + "ab"[number % 2], [number])) for number in range(SESSIONS)]
    for each in stored:
        world.wait(each)
    for _ in range(20):
        world.settle()
    assert [data_of(receiver) for receiver in reliable] == [[[number] for number in range(SESSIONS)]] * SESSIONS


def data_of(client: Client) -> list[Any]:
    if isinstance(client, Receiver):
        return data(client.take())
    return [each["data"] for each in client.connect(advice={"timeout": 0}).answer if "data" in each]


def test_an_address_has_one_budget_for_all_of_its_sessions(
    world: StoredWorld, caplog: pytest.LogCaptureFixture
) -> None:
    clients = hearing(world, *(costly(number) for number in range(200)))
    world.broker.publish("/a", LONG)
    world.settle()
    for _ in range(100):
        world.settle()
    lost = [client for client in clients if "/a" not in client.session.subscriptions]
    spent = len(clients) - len(lost)
    assert spent * len(LONG) < ACCOUNT_STEPS + ACCOUNT_MINIMUM
    assert len(lost) > len(clients) // 2
    assert world.broker.metrics.filters_over_budget == len(lost)
    # The message that was not judged is delivered, and the notice is the last of all.
    assert {tuple(taken(client)) for client in lost} == {(len(LONG), "/a")}
    assert {tuple(taken(client)) for client in clients if client not in lost} == {(len(LONG),)}
    assert f"{ACCOUNT_STEPS} for a message" in caplog.text
    assert caplog.text.count("a subscription of an anonymous session") < 20
    assert "more subscriptions have ended" in caplog.text


def test_a_session_that_lost_its_subscription_gets_nothing_of_what_follows(world: StoredWorld) -> None:
    clients = hearing(world, *(costly(number) for number in range(200)))
    for _ in range(5):
        world.broker.publish("/a", LONG)
    for _ in range(100):
        world.settle()
    lost = [told for told in map(taken, clients) if "/a" in told]
    assert len(lost) > len(clients) // 2
    for told in lost:
        assert told.index("/a") == len(told) - 1


def test_the_clients_of_an_address_without_rates_share_no_budget(world: StoredWorld) -> None:
    clients = hearing(world, *(costly(number) for number in range(100)))
    for client in clients:
        client.session.charge(client.session.account, is_exempt=True)
    world.broker.publish("/a", LONG)
    for _ in range(100):
        world.settle()
    assert world.broker.metrics.filters_over_budget == 0
