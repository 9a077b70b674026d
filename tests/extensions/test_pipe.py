"""The pipe of extensions: their order, their vetoes and their failures."""

from typing import Any

import pytest

from crewel.broker.session import SessionPart
from crewel.delivery.entry import Entry
from crewel.extension import Extension
from tests.broker.world import Client, MakeWorld, data_of


class Notes(Extension):
    """Notes what it sees, and may add a part to sessions that does so too."""

    def __init__(self, name: str, seen: list[str], has_part: bool = False) -> None:
        self.name = name
        self.seen = seen
        self.has_part = has_part

    def rcv(self, session: Any, message: Any) -> bool:
        self.seen.append(f"{self.name}.rcv")
        return True

    def rcv_meta(self, session: Any, message: Any) -> bool:
        self.seen.append(f"{self.name}.rcv_meta")
        if self.has_part and message.channel.name == "/meta/handshake":
            session.add_part(Part(self.name, self.seen))
        return True

    def send(self, session: Any, fields: Any) -> bool:
        self.seen.append(f"{self.name}.send {'reply' if 'successful' in fields else 'message'}")
        return True

    def send_meta(self, session: Any, reply: Any, message: Any) -> bool:
        self.seen.append(f"{self.name}.send_meta")
        return True


class Part(SessionPart):
    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    def rcv(self, session: Any, message: Any) -> bool:
        self.seen.append(f"{self.name}.part.rcv")
        return True

    def rcv_meta(self, session: Any, message: Any) -> bool:
        self.seen.append(f"{self.name}.part.rcv_meta")
        return True

    def send(self, session: Any, entries: list[Entry]) -> list[Entry]:
        self.seen.append(f"{self.name}.part.send {len(entries)}")
        return entries

    def send_meta(self, session: Any, reply: Any, message: Any) -> bool:
        self.seen.append(f"{self.name}.part.send_meta")
        return True


class TestOrder:
    def test_in_by_registration_then_the_sessions_parts_and_out_the_other_way(self, make_world: MakeWorld) -> None:
        seen: list[str] = []
        world = make_world(extensions=[Notes("a", seen, has_part=True), Notes("b", seen, has_part=True)])
        client = Client(world)
        client.handshake()
        meta_in = ["a.rcv_meta", "b.rcv_meta", "a.part.rcv_meta", "b.part.rcv_meta"]
        meta_out = ["b.part.send_meta", "a.part.send_meta", "b.send_meta", "a.send_meta"]
        assert seen == meta_in + meta_out
        client.subscribe("/a")
        seen.clear()
        client.publish("/a", 1)
        assert seen == [
            *("a.rcv", "b.rcv", "a.part.rcv", "b.part.rcv"),
            *("b.send message", "a.send message"),
            *("b.part.send 1", "a.part.send 1"),
            *("b.send reply", "a.send reply"),
        ]

    def test_a_message_is_seen_once_and_not_once_a_subscriber(self, make_world: MakeWorld) -> None:
        seen: list[str] = []
        world = make_world(extensions=[Notes("a", seen)])
        for _ in range(3):
            Client(world).joined("/a")
        seen.clear()
        world.broker.publish("/a", 1)
        assert seen == ["a.send message"]

    def test_a_held_connects_reply_is_seen_when_it_leaves(self, make_world: MakeWorld) -> None:
        seen: list[str] = []
        client = Client(make_world(extensions=[Notes("a", seen)])).joined()
        seen.clear()
        held = client.connect()
        assert (held.is_held, seen) == (True, ["a.rcv_meta"])
        client.world.advance(30)
        assert seen == ["a.rcv_meta", "a.send_meta"]


def vetoing(hook: str) -> Extension:
    return type("Vetoing", (Extension,), {hook: lambda self, *arguments: False})()  # type: ignore[no-any-return]


def failing(hook: str) -> Extension:
    def fail(self: Any, *arguments: Any) -> bool:
        raise RuntimeError("broken")

    return type("Failing", (Extension,), {hook: fail})()  # type: ignore[no-any-return]


class TestVeto:
    def test_of_a_publish(self, make_world: MakeWorld) -> None:
        client = Client(make_world(extensions=[vetoing("rcv")])).joined("/a")
        request = client.send(client.message("/a", data=1, id="p"))
        assert request.received == [{"channel": "/a", "id": "p", "successful": False, "error": "404::message_deleted"}]

    def test_of_a_delivery_and_of_an_acknowledgement(self, make_world: MakeWorld) -> None:
        client = Client(make_world(extensions=[vetoing("send")])).joined("/a")
        assert client.send(client.message("/a", data=1)).received == []
        assert client.connect().is_held

    def test_of_a_meta_reply(self, make_world: MakeWorld) -> None:
        assert make_world(extensions=[vetoing("send_meta")]).post({"channel": "/meta/handshake"}).answer == []

    def test_what_answers_nothing_vetoes_nothing(self, make_world: MakeWorld) -> None:
        class Forgetful(Extension):
            def rcv(self, session: Any, message: Any) -> bool:
                return None  # type: ignore[return-value]

        assert Client(make_world(extensions=[Forgetful()])).joined().publish("/a", 1)["successful"]

    def test_a_part_may_keep_messages_from_its_session(self, make_world: MakeWorld) -> None:
        class Odd(SessionPart):
            def send(self, session: Any, entries: list[Entry]) -> list[Entry]:
                return [entry for entry in entries if entry.fields["data"] % 2]

        class OddOnly(Extension):
            def rcv_meta(self, session: Any, message: Any) -> bool:
                if message.channel.name == "/meta/handshake":
                    session.add_part(Odd())
                return True

        world = make_world(extensions=[OddOnly()])
        client = Client(world).joined("/a")
        for number in range(5):
            world.broker.publish("/a", number)
        assert data_of(client.connect().answer) == [1, 3]


class TestFailure:
    @pytest.mark.parametrize("hook", ["rcv", "rcv_meta", "send", "send_meta"])
    def test_an_extension_that_fails_is_logged_and_the_message_goes_on(
        self, make_world: MakeWorld, hook: str, caplog: Any
    ) -> None:
        client = Client(make_world(extensions=[failing(hook)])).joined("/a")
        assert data_of(client.send(client.message("/a", data=1)).received) == [1]
        assert "an extension failed" in caplog.text

    def test_a_part_of_an_extension_that_fails_is_logged_and_the_message_continues(
        self, make_world: MakeWorld, caplog: Any
    ) -> None:
        class Broken(SessionPart):
            def send(self, session: Any, entries: list[Entry]) -> list[Entry]:
                raise RuntimeError("broken")

        client = Client(make_world()).joined("/a")
        client.session.add_part(Broken())
        assert data_of(client.send(client.message("/a", data=1)).received) == [1]
        assert "a session part failed" in caplog.text

    def test_a_reply_that_json_cannot_say_becomes_an_error(self, make_world: MakeWorld, caplog: Any) -> None:
        class Broken(Extension):
            def send_meta(self, session: Any, reply: Any, message: Any) -> bool:
                reply["ext"] = object()
                return True

        (reply,) = make_world(extensions=[Broken()]).post({"channel": "/meta/connect", "id": "1"}).answer
        assert reply == {"channel": "/meta/connect", "id": "1", "successful": False, "error": "500::internal_error"}
        assert "JSON cannot represent" in caplog.text


class TestConcern:
    """An extension may say what it looks at; nothing else of the meta messages comes to it."""

    @pytest.mark.parametrize(
        ("field", "channels", "ext", "sees"),
        [
            (None, None, None, True),
            ("f", None, None, False),
            ("f", None, {"g": 1}, False),
            ("f", None, {"f": None}, True),
            ("f", None, ["f"], False),
            ("f", None, "f", False),
            (None, {"/meta/connect"}, None, True),
            (None, {"/meta/handshake"}, None, False),
            ("f", {"/meta/connect"}, {"f": 1}, True),
            ("f", {"/meta/connect"}, {"g": 1}, False),
            ("f", {"/meta/handshake"}, {"f": 1}, False),
        ],
    )
    def test_of_a_connect_and_its_reply(
        self, field: str | None, channels: set[str] | None, ext: Any, sees: bool, make_world: MakeWorld
    ) -> None:
        seen: list[str] = []
        concern = {"field": field, "meta_channels": channels and frozenset(channels)}
        extension = type("Concerned", (Notes,), concern)("a", seen)
        client = Client(make_world(extensions=[extension])).joined()
        seen.clear()
        client.connect(**({} if ext is None else {"ext": ext}))
        client.world.advance(30)
        assert seen == (["a.rcv_meta", "a.send_meta"] if sees else [])

    def test_a_part_that_comes_while_a_bare_connect_is_held_sees_its_reply(self, make_world: MakeWorld) -> None:
        told: list[tuple[Any, Any]] = []

        class Late(SessionPart):
            def send_meta(self, session: Any, reply: Any, message: Any) -> bool:
                told.append((dict(message.fields), dict(reply)))
                return True

        client = Client(make_world()).joined()
        client.connect(id="7")
        client.session.add_part(Late())
        client.world.advance(30)
        request = {
            "channel": "/meta/connect",
            "connectionType": "long-polling",
            "clientId": client.session.id,
            "id": "7",
        }
        assert told == [(request, {"channel": "/meta/connect", "successful": True, "id": "7"})]
