"""Messages that the server cannot make into what a receiver gets: each becomes a dead letter of that receiver, and all behind
it is delivered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.broker.publishing.broadcaster import StoragePlan
from crewel.broker.session import Session, SessionPart
from crewel.delivery.entry import Entry
from crewel.errors import IllegalArgument
from crewel.extension import Extension
from crewel.extensions.ack import AckExtension
from crewel.extensions.update import UpdateExtension
from crewel.qos.publish import PublishQos
from tests.broker.addressing.post import come, login
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, ok, store
from tests.broker.world import Client, Socket, World

CODE = "user.update.internalError"
NO_OBJECTS: list[Any] = ["x", None, [], ["x"], 5, 1.5, True]


class TestDoors:
    @pytest.mark.parametrize("ext", NO_OBJECTS)
    @pytest.mark.parametrize(
        ("channel", "more"),
        [
            ("/a", {"data": 1}),
            ("/service/update", {"data": []}),
            ("/meta/connect", {"connectionType": "long-polling"}),
            ("/meta/subscribe", {"subscription": "/b"}),
            ("/meta/unsubscribe", {"subscription": "/a"}),
            ("/meta/disconnect", {}),
        ],
    )
    def test_an_ext_that_is_no_object_is_refused_and_named(
        self, world: World, channel: str, more: dict[str, Any], ext: Any
    ) -> None:
        client = Client(world).joined("/a")
        reply = client.say(channel, **more, ext=ext)
        assert not reply["successful"]
        assert reply["error"] == "400:ext:user.illegalArgument"
        assert client.is_known
        assert client.publish("/a", 2)["successful"]

    @pytest.mark.parametrize("ext", NO_OBJECTS)
    def test_an_ext_that_is_no_object_is_refused_in_a_handshake(self, world: World, ext: Any) -> None:
        (reply,) = world.post({"channel": "/meta/handshake", "id": "1", "ext": ext}).answer
        assert reply["error"] == "400:ext:user.illegalArgument"
        assert "clientId" not in reply

    @pytest.mark.parametrize("ext", [each for each in NO_OBJECTS if each is not None])
    def test_an_ext_that_is_no_object_is_refused_in_an_applications_publish(
        self, stored: StoredWorld, ext: Any
    ) -> None:
        broker, joe = stored.broker, login(stored, "joe/1", "/a")
        with pytest.raises(IllegalArgument, match="ext"):
            broker.publish("/a", 1, ext=ext)
        with pytest.raises(IllegalArgument, match="ext"):
            stored.wait(broker.publish_stored("/a", 1, ext=ext))
        with pytest.raises(IllegalArgument, match="ext"):
            stored.wait(broker.send("client/joe/1", "/a", 1, ext=ext))
        with pytest.raises(IllegalArgument, match="ext"):
            joe.session.deliver("/a", 1, ext=ext)
        assert come(joe) == []


def store_malformed(world: StoredWorld, name: str, value: Any, history_max: int = 0) -> str:
    """Store a message as an older version took it: its `ext` is no object. Its id."""
    channel = parse(name)
    assert channel is not None

    async def stored() -> str:
        fields: Fields = {"channel": name, "data": value, "ext": "x"}
        plan, qos = StoragePlan(history_max), PublishQos(persistent=True)
        return (await world.broker.publishing.broadcaster.store(channel, fields, plan, qos)).id

    return world.wait(stored())


Restarted = tuple[StoredWorld, list[Receiver], list[str]]


@pytest.fixture
def restarted(make_stored: MakeStored) -> Callable[..., Restarted]:
    """A server that starts on a log whose second of three messages is malformed; its receivers; the ids."""

    def start(*names: str) -> Restarted:
        world = make_stored()
        receivers = [login(world, each, "/a") for each in names]
        ids = [*store(world, "/a", 1), store_malformed(world, "/a", 2), *store(world, "/a", 3)]
        world.commit()
        world.crash()
        again = make_stored(prefix=world.prefix)
        for each in receivers:
            each.world = again
        return again, receivers, ids

    return start


class TestStored:
    def test_a_malformed_one_becomes_a_letter_of_each_receiver_that_is_told_origins(
        self, restarted: Callable[..., Restarted], caplog: pytest.LogCaptureFixture
    ) -> None:
        world, receivers, ids = restarted("joe/1", "ann/1")
        for receiver in receivers:
            messages = come(receiver)
            assert data(messages) == [1, 3]
            receiver.take(*map(ok, messages))
        letters = world.letters()
        assert sorted((each.receiver, each.id, each.code) for each in letters) == [
            ("client/ann/1", ids[1], CODE),
            ("client/joe/1", ids[1], CODE),
        ]
        assert all("the server could not send it" in each.reason for each in letters)
        assert receivers[0].session.mailbox.view().depth == 0
        assert "could not be sent" in caplog.text

    def test_over_a_socket_too(self, restarted: Callable[..., Restarted]) -> None:
        world, (joe,), _ = restarted("joe/1")
        joe.socket = socket = Socket(joe.browser)
        for _ in range(3):
            joe.send(joe.message("/meta/connect", ext={"ack": joe.ack}, advice={"timeout": 0}))
            for each in socket.received:
                joe.ack = each.get("ext", {}).get("ack", joe.ack)
            world.settle()
        assert [each["data"] for each in socket.received if "data" in each] == [1, 3]
        assert [each.code for each in world.letters()] == [CODE]

    def test_an_unsendable_message_stays_a_letter_over_another_restart(
        self, restarted: Callable[..., Restarted], make_stored: MakeStored
    ) -> None:
        world, (joe,), ids = restarted("joe/1")
        joe.take(*map(ok, come(joe)))
        world.commit()
        world.crash()
        again = make_stored(prefix=world.prefix)
        joe.world = again
        assert come(joe) == []
        assert [(each.id, each.code) for each in again.letters()] == [(ids[1], CODE)]

    def test_of_a_history_it_is_left_out_by_whom_a_subscribe_reads_it(self, make_stored: MakeStored) -> None:
        world = make_stored()
        world.wait(world.broker.publish_stored("/h", 1, qos={"history": {"maxEntries": 9}}))
        store_malformed(world, "/h", 2, history_max=9)
        joe = login(world, "joe/1")
        asked = {"history": {"numEntries": -1, "newestFirst": False}}
        assert joe.say("/meta/subscribe", subscription="/h", ext={"subscribe": asked})["successful"]
        assert data(come(joe)) == [1]
        assert [each.code for each in world.letters()] == [CODE]

    def test_of_a_history_it_is_told_without_its_origin(self, make_stored: MakeStored) -> None:
        world = make_stored()
        world.wait(world.broker.publish_stored("/h", 1, qos={"history": {"maxEntries": 9}}))
        store_malformed(world, "/h", 2, history_max=9)
        messages = world.wait(world.broker.subscriptions.histories.shown(parse("/h"), None, newest_first=False))
        assert [(each["data"], each["ext"] == "x") for each in messages] == [(1, False), (2, True)]


class Spoils(Extension):
    """Makes of a message on /a whose data is `bad` what cannot be sent, or fails."""

    name = "spoils"

    def __init__(self, how: Callable[[Fields], None]) -> None:
        self.how = how

    def send(self, session: Session | None, fields: Fields) -> bool:
        if fields.get("data") == "bad":
            self.how(fields)
        return True


class SpoilingPart(SessionPart):
    """Fails for a response that has a message whose data is `bad`."""

    def __init__(self, how: Callable[[list[Entry]], Any]) -> None:
        self.how = how

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        return self.how(entries) if any(b'"bad"' in each.wire for each in entries) else entries


def raises(_: Any) -> Any:
    raise RuntimeError("spoiled")


def says_nonsense(fields: Fields) -> None:
    fields["ext"] = "x"


class TestExtensions:
    @pytest.mark.parametrize("how", [raises, says_nonsense])
    @pytest.mark.parametrize("persistent", [True, False])
    def test_one_that_fails_for_a_message_lets_it_and_all_others_through(
        self, make_stored: MakeStored, how: Callable[[Fields], None], persistent: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = make_stored(extensions=(UpdateExtension(), AckExtension(), Spoils(how)))
        joe = login(world, "joe/1", "/a")
        clerk = Client(world).joined()
        for value in (1, "bad", 3):
            assert clerk.publish("/a", value, ext={"publish": {"persistent": persistent}})["successful"]
        assert data(come(joe)) == [1, "bad", 3]
        assert [record.levelno for record in caplog.records if record.name == "crewel.broker.pipe"] == [logging.ERROR]

    @pytest.mark.parametrize("how", [raises, lambda _: None, lambda _: [5]])
    def test_a_part_of_a_session_that_fails_lets_messages_through(
        self, stored: StoredWorld, how: Callable[[list[Entry]], Any]
    ) -> None:
        joe = login(stored, "joe/1", "/a")
        joe.session.add_part(SpoilingPart(how))
        store(stored, "/a", 1, "bad", 3)
        assert data(come(joe)) == [1, "bad", 3]

    def test_what_a_part_makes_unsendable_becomes_a_letter_and_the_rest_is_delivered(self, stored: StoredWorld) -> None:
        def spoiled(entries: list[Entry]) -> list[Entry]:
            return [
                Entry.logged("/a", each.position, b'{"channel":"/a","ext":"x"}', origin=each.origin)
                if b'"bad"' in each.wire
                else each
                for each in entries
            ]

        joe = login(stored, "joe/1", "/a")
        joe.session.add_part(SpoilingPart(spoiled))
        ids = store(stored, "/a", 1, "bad", 3)
        assert data(come(joe)) == [1, 3]
        assert [(each.id, each.code) for each in stored.letters()] == [(ids[1], CODE)]

    def test_if_nothing_of_a_response_can_be_made_its_messages_become_letters(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        joe = Receiver(stored)
        assert joe.handshake(ext={"ack": True, "session": {"name": "joe/1"}})["successful"]
        joe.subscribe("/a")
        joe.take()
        with monkeypatch.context() as broken:
            broken.setattr(stored.broker.mailboxes.outbound.pipe, "departing", lambda _, entries: raises(entries))
            joe.session.has_senders = True
            bad = store(stored, "/a", "bad")
            assert joe.take() == []
        store(stored, "/a", "good")
        assert data(joe.take()) == ["good"]
        assert [(each.id, each.code) for each in stored.letters()] == [(*bad, CODE)]
