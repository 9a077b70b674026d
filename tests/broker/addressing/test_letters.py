"""Dead letters of addressed messages: they name the destination, and a redrive sends to that one only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from crewel.broker.dead_letter import DeadLetter
from crewel.broker.dead_letters.redrive import Chosen, Limits, Report
from crewel.cli.dead_letter_files import write_file
from crewel.security.grants import OPERATOR
from crewel.storage.dead_letter_records import StoredDeadLetter
from tests.broker.addressing.post import BOX, Clerk, come, login, one, queue
from tests.broker.addressing.test_consumer_groups import member, publish
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, failed, origin

ROOM = "/room"
PRIVATE: dict[str, Any] = {"channel": ROOM, "subscribable": False}
Ask = Callable[[Clerk], str]


def redriven_to_channel(world: StoredWorld, letter: StoredDeadLetter) -> Report:
    """Send the letter to its channel."""
    work = world.broker.dead_letters.redrive.redrive(Chosen(ids=(letter.dead_id,)), Limits(), to_channel=True)
    report = world.wait(work)
    world.settle()
    return report


def failing(receiver: Receiver) -> None:
    """Let the receiver reject everything that waits for it."""
    receiver.take(*[failed(each, "user.update.deadMessage") for each in come(receiver)])


def only_letter(world: StoredWorld) -> StoredDeadLetter:
    (letter,) = world.letters()
    return letter


def shown(letter: StoredDeadLetter) -> dict[str, Any]:
    return DeadLetter.read(letter, "heron").as_json()


def dumped(letter: StoredDeadLetter, directory: Path) -> Any:
    """What a dump has under `publish`."""
    assert write_file(shown(letter), directory)
    (file,) = directory.rglob("*.json")
    return orjson.loads(file.read_bytes())["publish"]


def replay(world: StoredWorld, publish: Any) -> None:
    """Publish what a dump holds, as a back end does."""
    (reply,) = world.wait(world.broker.publishing.for_back_ends.post(OPERATOR, [publish]))
    assert reply["successful"], reply
    world.settle()


@pytest.fixture(params=[True, False], ids=["persistent", "transient"])
def persistent(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def bystander(world: StoredWorld) -> Receiver:
    """A session that is subscribed to the channel, and was not meant."""
    receiver = login(world, "eve/1", ROOM)
    receiver.take()
    return receiver


class TestTheLetter:
    def test_the_letter_has_the_destinations_and_whether_subscribers_heard_it(
        self, world: StoredWorld, clerk: Clerk, persistent: bool
    ) -> None:
        joe = login(world, "joe/1")
        destinations = [{"to": "client/ann", "forceQueuing": True}, {"to": "client/joe/1"}]
        clerk.ask("secret", *destinations, **PRIVATE, persistent=persistent, priority=7)
        failing(joe)
        letter = only_letter(world)
        told = shown(letter)
        assert told["qos"] == {"destination": destinations, "subscribable": False, "priority": 7}
        assert told["to"] == "client/joe/1"
        properties = DeadLetter.read(letter, "heron").properties()
        assert properties["__qos"]["destination"] == destinations

    def test_receivers_are_not_told_who_else_gets_the_message(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        clerk.ask("secret", "client/joe/1", queue("client/ann"), **PRIVATE, persistent=True)
        (message,) = come(joe)
        assert not {"destination", "subscribable"} & origin(message).keys()

    def test_the_copy_of_a_subscriber_has_no_destination(
        self, world: StoredWorld, clerk: Clerk, bystander: Receiver
    ) -> None:
        login(world, "joe/1")
        clerk.post("to all", "client/joe/1", channel=ROOM, persistent=True)
        failing(bystander)
        told = shown(only_letter(world))
        assert "to" not in told
        assert "destination" not in told["qos"]

    def test_a_transient_message_keeps_what_its_publish_asked_for(self, world: StoredWorld, clerk: Clerk) -> None:
        """Also where no session of the server receives the origin of messages."""
        plain = Receiver(world)
        ext = {"ack": True, "session": {"name": "joe/1", "queue": {"maxEntries": 1}}}
        assert plain.handshake(ext=ext)["successful"]
        plain.subscribe(ROOM)
        for number in (1, 2):
            qos = {"priority": 3, "clientProperties": {"n": number}}
            assert clerk.publish(ROOM, number, ext={"publish": qos})["successful"]
        told = shown(only_letter(world))
        assert told["qos"] == {"priority": 3, "clientProperties": {"n": 2}}
        assert told["sender"].startswith("client/clerk/")


class TestToItsChannel:
    @pytest.mark.parametrize(
        "to", ["client/joe/1", "client/joe", one("client/joe")], ids=["session", "subject", "one of a subject"]
    )
    def test_a_redriven_letter_goes_to_its_destination_and_to_no_subscriber(
        self, world: StoredWorld, clerk: Clerk, bystander: Receiver, to: Any, persistent: bool
    ) -> None:
        joe = login(world, "joe/1")
        clerk.post("secret", to, **PRIVATE, persistent=persistent)
        failing(joe)
        assert redriven_to_channel(world, only_letter(world)).done == 1
        (message,) = come(joe)
        assert message["data"] == "secret"
        assert origin(message)["subscription"] == "__subId:PtP"
        assert come(bystander) == []
        assert world.letters() == []

    def test_of_a_subject_it_reaches_a_session_that_came_later(
        self, world: StoredWorld, clerk: Clerk, bystander: Receiver
    ) -> None:
        joe = login(world, "joe/1")
        clerk.post("secret", "client/joe", **PRIVATE, persistent=True)
        failing(joe)
        joe.say("/meta/disconnect")
        world.commit()
        letter = only_letter(world)
        assert redriven_to_channel(world, letter).done == 1
        assert data(come(login(world, "joe/2"))) == ["secret"]
        assert come(bystander) == []

    def test_of_a_session_that_has_gone_it_stays_and_says_so(
        self, world: StoredWorld, clerk: Clerk, bystander: Receiver
    ) -> None:
        joe = login(world, "joe/1")
        clerk.post("secret", "client/joe/1", **PRIVATE, persistent=True)
        joe.say("/meta/disconnect")
        world.commit()
        report = redriven_to_channel(world, only_letter(world))
        (undone,) = report.undone
        assert (undone.code, undone.message) == (
            "user.ptp.unknownDestinationSession",
            "there is no session client/joe/1",
        )
        assert come(bystander) == []

    def test_a_subscribers_copy_goes_to_all_who_are_subscribed(
        self, world: StoredWorld, clerk: Clerk, bystander: Receiver
    ) -> None:
        joe = login(world, "joe/1")
        clerk.post("to all", "client/joe/1", channel=ROOM, persistent=True)
        assert len(come(joe)) == 1
        failing(bystander)
        assert redriven_to_channel(world, only_letter(world)).done == 1
        assert data(come(bystander)) == ["to all"]
        assert come(joe) == []

    def test_a_member_of_a_group_on_the_channel_gets_it(self, world: StoredWorld, bystander: Receiver) -> None:
        first = member(world, "joe/1", ROOM)
        publish(world, "job", channel=ROOM)
        (message,) = come(first)
        assert data(come(bystander)) == ["job"]
        second = member(world, "ann/1", ROOM)
        first.take(failed(message, "user.update.deadMessage"))
        first.say("/meta/disconnect")
        world.commit()
        letter = only_letter(world)
        assert letter.receiver == "client/joe/1"
        assert redriven_to_channel(world, letter).done == 1
        assert data(come(second)) == ["job"]
        assert data(come(bystander)) == ["job"]
        assert world.letters() == []

    def test_an_edited_one_too(self, world: StoredWorld) -> None:
        worker = member(world, "joe/1", ROOM)
        publish(world, "jbo", channel=ROOM)
        failing(worker)
        letter = only_letter(world)
        body = letter.body.replace(b"jbo", b"job")
        world.wait(world.broker.dead_letters.redrive.edit(letter, body, "eve", to_channel=True))
        assert data(come(worker)) == ["job"]

    def test_where_too_many_wait_for_the_group_a_redriven_letter_is_its_letter(self, make_stored: MakeStored) -> None:
        world = make_stored("ptp.group_queue_max_entries=1")
        worker = member(world, "joe/1", ROOM, burst={"maxEntries": 1})
        publish(world, "first", channel=ROOM)
        failing(worker)
        letter = only_letter(world)
        publish(world, "second", "third", channel=ROOM)
        assert redriven_to_channel(world, letter).done == 1
        full = only_letter(world)
        assert (full.receiver, full.code) == (f"group:{ROOM} workers", "resource.overflow.queue.entries")
        assert full.redrive_of == letter.dead_id


class TestADump:
    def test_its_replay_goes_to_the_destination_and_to_no_subscriber(
        self, world: StoredWorld, clerk: Clerk, bystander: Receiver, persistent: bool, tmp_path: Path
    ) -> None:
        joe = login(world, "joe/1")
        clerk.post("secret", "client/joe/1", channel=ROOM, persistent=persistent, subscribable=False)
        failing(joe)
        publish = dumped(only_letter(world), tmp_path)
        asked = publish["ext"]["publish"]
        assert (asked["destination"], asked["subscribable"]) == ([{"to": "client/joe/1"}], False)
        replay(world, publish)
        assert data(come(joe)) == ["secret"]
        assert come(bystander) == []

    def test_a_dump_names_the_one_destination_that_the_letter_is_of(
        self, world: StoredWorld, clerk: Clerk, tmp_path: Path
    ) -> None:
        joe = login(world, "joe/1")
        clerk.ask("secret", queue("client/ann"), queue("client/joe"), persistent=True)
        failing(joe)
        assert dumped(only_letter(world), tmp_path) == {
            "channel": BOX,
            "data": "secret",
            "ext": {"publish": {"destination": [queue("client/joe")], "persistent": True}},
        }
