"""Who follows dead letters: their queues, their bounds, and what a failing one costs. That letters arrive is for
tests/functional/test_dead_letters_live.py."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.broker.dead_letter import DeadLetter
from crewel.broker.dead_letters.notifier import MOST_WAITING, Follower
from crewel.broker.services import Service
from crewel.delivery.records import LogId, PendingDeadLetter, SessionName
from crewel.errors import StoreUnavailable
from crewel.storage.dead_letter_records import StoredDeadLetter
from tests.broker.world import MakeWorld, World


def stored(dead_id: str = "5-0", **fields: Any) -> StoredDeadLetter:
    usual: dict[str, Any] = {
        "id": "7", "received": "7000", "receiver": "client/joe/1", "channel": "/a", "code": "user.x", "reason": "why",
        "attempts": 1, "returns": 0, "sender": "client/ann/1", "qos": b"", "body": b'{"channel":"/a","data":{"n":1}}',
        "is_persistent": True, "redrive_of": "",
    }  # fmt: skip
    return StoredDeadLetter(dead_id=dead_id, **(usual | fields))


class Store:
    """Letters by their dead id; those that begin with `gone` are there no more. It may be away for a while."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.failures = 0

    async def get(self, _: object, dead_ids: Sequence[str]) -> list[StoredDeadLetter]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        self.asked.append(list(dead_ids))
        return [stored(each) for each in dead_ids if not each.startswith("gone")]


class Shown:
    """What a follower was shown."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def __call__(self, letters: list[DeadLetter]) -> None:
        self.ids += [letter.dead_id for letter in letters]


@pytest.fixture
def store(world: World, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr("crewel.broker.dead_letters.notifier.dead_letter_store.get", store.get)
    return store


class TestFollowers:
    def test_letters_are_shown_in_their_order_as_far_as_they_are_there(self, world: World, store: Store) -> None:
        shown = Shown()
        follower = Follower("hook", world.broker.runtime, shown)
        follower.offer(["1-0", "gone"])
        follower.offer(["2-0"])
        world.settle()
        assert shown.ids == ["1-0", "2-0"]
        follower.offer(["3-0"])
        world.settle()
        assert shown.ids[-1] == "3-0"

    def test_dead_letters_are_read_a_hundred_at_a_time(self, world: World, store: Store) -> None:
        shown = Shown()
        Follower("hook", world.broker.runtime, shown).offer([f"{number}-0" for number in range(250)])
        world.settle()
        assert [len(ids) for ids in store.asked] == [100, 100, 50]
        assert len(shown.ids) == 250

    def test_what_is_beyond_the_bound_is_counted_and_not_shown(self, world: World, store: Store) -> None:
        shown = Shown()
        follower = Follower("hook", world.broker.runtime, shown)
        follower.offer([f"{number}-0" for number in range(MOST_WAITING + 3)])
        follower.offer(["late-0"])
        world.settle()
        assert len(shown.ids) == MOST_WAITING
        assert world.broker.metrics.letters_not_shown == {"hook": 4}

    def test_a_store_that_is_away_is_asked_again(self, world: World, store: Store) -> None:
        shown = Shown()
        store.failures = 3
        Follower("hook", world.broker.runtime, shown).offer(["1-0"])
        world.settle()
        assert shown.ids == []
        for _ in range(3):
            world.advance(0.5)
            world.settle()
        assert shown.ids == ["1-0"]

    def test_a_letter_that_cannot_be_read_is_shown_and_one_that_cannot_be_shown_is_passed_over(
        self, world: World, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        bodies = {"1-0": b"{", "2-0": b"{}", "3-0": b"{}"}

        async def get(_: object, dead_ids: Sequence[str]) -> list[StoredDeadLetter]:
            return [stored(each, body=bodies[each]) for each in dead_ids]

        shown: dict[str, Any] = {}

        async def show(letters: list[DeadLetter]) -> None:
            shown.update({letter.dead_id: letter.data for letter in letters})
            raise LookupError

        monkeypatch.setattr("crewel.broker.dead_letters.notifier.dead_letter_store.get", get)
        follower = Follower("hook", world.broker.runtime, show)
        follower.offer(["1-0", "2-0"])
        world.settle()
        follower.offer(["3-0"])
        world.settle()
        assert shown == dict.fromkeys(["1-0", "2-0", "3-0"])
        assert "dead letters could not be sent to the live channel" in caplog.text

    def test_without_one_nothing_is_kept(self, world: World, store: Store) -> None:
        world.broker.dead_letters.notifier.stored([], ["1-0"])
        world.settle()
        assert store.asked == []


class TestFigures:
    def test_a_store_that_takes_its_time_holds_no_figures_up(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = world.loop.create_future()
        asked: list[Any] = []

        async def count(*question: Any) -> int:
            asked.append(question)
            return int(await answer)

        async def none(_: object) -> int:
            return 0

        monkeypatch.setattr("crewel.broker.dead_letters.notifier.dead_letter_store.count", count)
        for name in ("dropped", "returned"):
            monkeypatch.setattr(f"crewel.broker.dead_letters.notifier.dead_letter_store.{name}", none)
        world.broker.runtime.access.store = SimpleNamespace(is_up=True)  # type: ignore[assignment]
        for _ in range(2):
            looking = world.loop.create_task(world.broker.dead_letters.notifier.count())
            world.settle()
            assert not looking.done()
            world.advance(0.2)
            world.settle()
            assert looking.done()
        assert b"crewel_letters_kept 0.0" in world.broker.metrics.exposition()
        answer.set_result(7)
        world.settle()
        assert b"crewel_letters_kept 7.0" in world.broker.metrics.exposition()
        assert len(asked) == 1, "one question at a time"


class TestHooks:
    def test_one_that_fails_is_logged_and_the_others_are_told(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        monkeypatch.setattr("crewel.broker.dead_letters.notifier.dead_letter_store.get", Store().get)
        told: list[DeadLetter] = []
        service = Service("app")

        @service.on_dead_letter
        def broken(letter: DeadLetter) -> None:
            raise LookupError(letter.dead_id)

        @service.on_dead_letter
        async def broken_later(letter: DeadLetter) -> None:
            raise LookupError(letter.dead_id)

        service.on_dead_letter(told.append)
        world = make_world(services=[service])
        world.broker.dead_letters.notifier.stored([], ["1-0", "2-0"])
        world.settle()
        assert [letter.dead_id for letter in told] == ["1-0", "2-0"]
        assert caplog.text.count("a service failed in") == 4


class TestLetters:
    def test_a_letter_says_the_same_as_an_object_as_json_and_as_a_message(self) -> None:
        letter = DeadLetter.read(stored(qos=b'{"priority":7}', redrive_of="4-0", returns=2), "heron")
        assert (letter.receiver, letter.data, letter.qos) == ("/node/heron/client/joe/1", {"n": 1}, {"priority": 7})
        told, properties = letter.as_json(), letter.properties()
        assert (told["id"], told["redriveOf"], told["returns"]) == ("5-0", "4-0", 2)
        assert (properties["__deadId"], properties["__redriveOf"], properties["__returns"]) == ("5-0", "4-0", 2)
        assert properties["__qos"] == {"priority": 7, "sender": "client/ann/1", "persistent": True}

    def test_what_else_a_publisher_said_goes_along_and_what_the_server_said_does_not(self) -> None:
        body = b'{"channel":"/a","data":1,"ext":{"binary":{"x":1},"update":{"id":"old"}}}'
        letter = DeadLetter.read(stored(body=body, is_persistent=False), "heron")
        entry = letter.entry(letter.fields(), "new", "9")
        assert set(entry.fields["ext"]) == {"binary", "update"}
        assert (entry.fields["ext"]["update"]["id"], entry.fields["ext"]["update"]["rcvTimestamp"]) == ("new", "9")
        assert "persistent" not in entry.fields["ext"]["update"]["clientProperties"]["__qos"]
        assert entry.updated() == entry.wire

    def test_of_a_message_of_which_nothing_is_left_the_rest_is_told(self) -> None:
        letter = DeadLetter.read(stored(body=b"", channel="", sender=""), "heron")
        assert (letter.data, letter.as_json()["errorCode"]) == (None, "user.x")

    def test_letters_are_counted_by_the_class_of_their_code(self, world: World) -> None:
        letters = [
            PendingDeadLetter(SessionName("client/joe/1"), LogId(1), code, "")
            for code in ("user.update.x", "user.update.y", "user.z")
        ]
        world.broker.dead_letters.notifier.stored(letters, [])
        assert world.broker.metrics.letters == {"user.update": 2, "user": 1}
