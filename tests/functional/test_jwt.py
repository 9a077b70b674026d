"""The policy `jwt` over both lanes: sessions do what their token grants, until it expires."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewel.client import Client as PythonClient
from tests.functional.bayeux import Client, Message, data
from tests.functional.conftest import Serve, one_lane
from tests.functional.frames import SocketClient
from tests.functional.people import DENIED, IDENTICAL, Person, refusal
from tests.functional.topic import read
from tests.functional.wire import until
from tests.security.issuer import SECRET, key_set, rsa_key, secret_file, signed
from tests.server_process import Server

EXPIRED = "user.security.authentication.expired"
ADMIN = "the-admin-token-of-tests"


@pytest.fixture
def guarded(serve: Serve, tmp_path: Path) -> Callable[..., Server]:
    """Start a server that asks for tokens."""

    def start(*sets: str, **options: Any) -> Server:
        keys = f"security.jwt_keys={secret_file(tmp_path)}"
        return serve("security.policy=jwt", keys, f"admin.token={ADMIN}", "bayeux.sweep_ms=50", *sets, **options)

    return start


def soon(seconds: float) -> int:
    """An `exp` that is at least so far away."""
    return int(time.time() + seconds) + 1


def test_a_token_that_holds_lets_in_and_nothing_else_does(guarded: Callable[..., Server]) -> None:
    server = guarded()
    person = Person(server).be("joe/1", token=signed())
    person.subscribe("/chat/**")
    publish = person.send(person.message("/chat/demo", data=1), person.message("/chat/x", data=2))
    assert [reply.get("error") for reply in publish if "data" not in reply] == [
        None,
        "403:denied_by_security_policy:publish_denied",
    ]
    assert data(person.take_all()) == [1]
    refused = person.send(person.message("/meta/subscribe", subscription="/**"))
    assert refused[0]["error"].startswith("403:")
    anonymous = Client(server)
    reply = anonymous.send(anonymous.message("/meta/handshake"))[0]
    assert (reply["error"], reply["advice"]) == (f"403::{DENIED}", {"reconnect": "none"})
    for token in ("", "x", signed("an" + SECRET), signed() + "x"):
        reply = Person(server).shake(name="joe/1", token=token)
        assert refusal(reply) == (f"403:client/joe/1:{DENIED}", DENIED, "none")
    assert refusal(Person(server).shake(name="joe/1", token=signed(exp=5)))[1] == EXPIRED
    until(lambda: "a handshake from 127.0.0.1 was refused: the token has expired" in server.stderr)


def test_a_token_is_good_for_the_names_of_its_subject(guarded: Callable[..., Server]) -> None:
    server = guarded()
    reply = Person(server).shake(name="ann/1", token=signed())
    assert refusal(reply) == (f"403:client/ann/1:{DENIED}", DENIED, "none")
    assert Person(server).be("joe", token=signed()).login["name"].rpartition("/")[0].endswith("client/joe")
    assert Person(server).be("ann/1", token=ADMIN).login["reconnected"] is False


def test_credentials_take_a_session_over_and_those_of_others_do_not(guarded: Callable[..., Server]) -> None:
    server = guarded()
    first = Person(server).be("joe/1", token=signed())
    first.subscribe("/chat/demo")
    connect = first.hold(ext={"ack": first.batch})
    assert refusal(Person(server).shake(token=signed(sub="ann"), resume=first.login["resume"]))[1] == DENIED
    assert refusal(Person(server).shake(name="joe/1", token=signed(), resume="wrong"))[1] == IDENTICAL
    second = Person(server)
    assert second.shake(name="joe/1", token=signed())["successful"] is True
    assert second.login["reconnected"] is True
    (told,) = connect.response().messages
    assert told["error"] == f"402:client/joe/1:{IDENTICAL}"
    second.publish("/chat/demo", 1)
    assert data(second.take_all()) == [1]


@one_lane
def test_the_subject_anonymous_takes_over_no_unnamed_session(guarded: Callable[..., Server]) -> None:
    server = guarded()
    unnamed = Person(server).be(token=signed())
    name = unnamed.login["name"].partition("client/")[2]
    reply = Person(server).shake(name=name, token=signed(sub="anonymous"))
    assert refusal(reply)[1] == DENIED
    assert "names sessions without a name" in reply["ext"]["session"]["message"]
    assert refusal(Person(server).shake(name=name, token=signed()))[1] == DENIED
    assert refusal(Person(server).shake(name=name, token=ADMIN))[1] == IDENTICAL


@one_lane
def test_an_idempotency_key_counts_for_the_subject_of_the_token(guarded: Callable[..., Server]) -> None:
    server = guarded()
    hearer = Person(server).be("joe/1", token=signed())
    hearer.subscribe("/chat/demo")
    for publish in ({"key": "order-1"}, {"key": "order-2", "persistent": True}):
        ids = []
        for subject in ("eve", "bank", "bank", "team: red"):
            sender = Person(server).be(token=signed(sub=subject))
            (reply, *_) = sender.send(sender.message("/chat/demo", data=subject, ext={"publish": publish}))
            ids.append(reply["ext"]["publish"]["id"])
        assert ids[1] == ids[2]
        assert len(set(ids)) == 3
        assert data(hearer.take_all()) == ["eve", "bank", "team: red"]


def test_clearing_sessions_ends_those_of_the_subject(guarded: Callable[..., Server]) -> None:
    server = guarded()
    old = Person(server).be("joe/1", token=signed())
    connect = old.hold(ext={"ack": old.batch})
    assert Person(server).shake(name="joe/2", token=signed(), clearSessions=True, maxSessions=1)["successful"] is True
    assert connect.response().messages[-1]["advice"]["reconnect"] == "none"


HISTORY: Message = {"publish": {"history": {"maxEntries": 5}}}
TO_ANN: Message = {"publish": {"destination": [{"to": "client/ann", "forceQueuing": True}]}}
COOKS: Message = {"subscribe": {"group": "cooks"}}
NOT_AUTHORIZED = "user.security.authorization.notAuthorized"


@one_lane
def test_what_goes_beyond_publish_and_subscribe_wants_a_claim_of_its_own(guarded: Callable[..., Server]) -> None:
    server = guarded()
    rows: list[tuple[str, str, str, Message]] = [  # a channel each: settings of a topic that there is ask for no grant
        ("configure", "/chat/*", "/chat/1", {"data": 1, "ext": HISTORY}),
        ("configure", "/chat/2", "/chat/2", {"ext": {"publish": {"administrative": True, "destroyDelay": 5}}}),
        ("configure", "/chat/3", "/chat/3", {"data": 1, "ext": {"publish": {"readonly": True}}}),
        ("address", "ann", "/chat/4", {"data": 1, "ext": TO_ANN}),
        ("address", "*", "/chat/5", {"data": 1, "ext": TO_ANN}),
        ("group", "/chat/**", "/meta/subscribe", {"subscription": "/chat/6", "ext": COOKS}),
    ]
    others = {"configure": ["/other"], "address": ["joe"], "group": ["/other"]}
    for number, (claim, granted, channel, fields) in enumerate(rows, 1):
        person = Person(server).be(f"joe/{2 * number}", token=signed(publish=["/chat/*"], **others))
        (refused,) = person.send(person.message(channel, **fields))
        assert (refused["successful"], refused["error"].partition(":")[0]) == (False, "403"), (channel, refused)
        assert refused["error"].endswith(NOT_AUTHORIZED), (channel, refused)
        person.disconnect()
        person = Person(server).be(f"joe/{2 * number + 1}", token=signed(publish=["/chat/*"], **{claim: [granted]}))
        reply = person.send(person.message(channel, **fields))[0]
        assert reply["successful"] is True, (channel, reply)
        person.disconnect()


@one_lane
def test_no_grant_is_needed_for_the_statuses_of_the_session(guarded: Callable[..., Server]) -> None:
    """What a client settles while its connect is held, and before it leaves, is published."""
    server = guarded()

    async def hear(count: int) -> list[tuple[Any, bool]]:
        token = signed(publish=[])
        heard = []
        async with PythonClient(server.url, name="joe/1", token=token, persistent=True, update=True, leave=True) as joe:
            messages = await joe.subscribe("/chat/demo")
            ann = Person(server).be("ann/1", token=signed(sub="ann"))
            for number in range(count):
                ann.publish("/chat/demo", number, ext={"publish": {"persistent": True}})
                message = await anext(messages)
                heard.append((message.data, message.redeliver > 0))
                message.settle()
        return heard

    assert asyncio.run(hear(3)) == [(0, False), (1, False), (2, False)]
    assert asyncio.run(hear(1)) == [(0, False)]


@one_lane
def test_the_claim_address_needs_publish_on_the_services_of_the_server_too(guarded: Callable[..., Server]) -> None:
    server = guarded()
    ann = Person(server).be("ann/1", token=signed(sub="ann"))
    eve = Person(server).be("eve/1", token=signed(sub="eve", publish=[], address=["*"], operator="view"))
    for channel in ("/service/update", "/service/get", "/service/erase", "/service/cancelScheduled", "/service/__cmd"):
        (refused,) = eve.send(eve.message(channel, data=1, ext=TO_ANN))
        assert (refused["successful"], refused["error"]) == (False, "400:destination:user.illegalArgument"), channel
    assert data(ann.take_all()) == []


@one_lane
def test_a_history_is_read_by_those_who_may_subscribe(guarded: Callable[..., Server]) -> None:
    server = guarded()
    owner = Person(server).be("joe/1", token=signed(configure=["/chat/demo"]))
    assert owner.send(owner.message("/chat/demo", data=1, ext=HISTORY))[0]["successful"] is True
    reader = Person(server).be("ann/1", token=signed(sub="ann", publish=[]))
    assert data(read(reader, "/chat/demo")) == [1]
    stranger = Person(server).be("eve/1", token=signed(sub="eve", subscribe=["/other"], publish=[]))
    answer = stranger.send(stranger.message("/service/get", data={"channel": "/chat/demo"}))
    (result,) = [each for each in answer if "data" in each] or stranger.take_all()
    assert result["successful"] is False


@one_lane
def test_settings_of_a_topic_that_there_is_ask_for_no_grant(guarded: Callable[..., Server]) -> None:
    """They count for the first publish only, so a later one that repeats them changes nothing."""
    server = guarded()
    owner = Person(server).be("joe/1", token=signed(configure=["/chat/demo"]))
    assert owner.send(owner.message("/chat/demo", data=1, ext=HISTORY))[0]["successful"] is True
    other = Person(server).be("joe/2", token=signed())
    assert other.send(other.message("/chat/demo", data=2, ext=HISTORY))[0]["successful"] is True


@one_lane
def test_nothing_is_said_to_be_recovered_that_is_not_granted(guarded: Callable[..., Server]) -> None:
    person = Person(guarded()).be("joe/1", token=signed())
    qos = {"since": {"/other": {"epoch": "", "id": "0"}}}
    (reply,) = person.send(person.message("/meta/subscribe", subscription="/other", ext={"subscribe": qos}))
    assert reply["error"].startswith("403:")
    assert "recovered" not in reply["ext"]["subscribe"]


@pytest.mark.parametrize("is_reliable", [True, False], ids=["stored", "in memory"])
def test_what_the_new_token_does_not_grant_is_heard_no_more(guarded: Callable[..., Server], is_reliable: bool) -> None:
    server = guarded()
    first, second = Person(server), Person(server)
    first.acknowledges = second.acknowledges = is_reliable
    first.be("joe/1", token=signed(subscribe=["/chat/**", "/news", "/jobs"], group=["/chat/*", "/jobs"]))
    first.subscribe("/chat/demo", "/news", f"/ret/{first.login['replyId']}/*")
    if is_reliable:
        for name in ("/chat/jobs", "/jobs"):
            (joined,) = first.send(first.message("/meta/subscribe", subscription=name, ext=COOKS))
            assert joined["successful"] is True
    second.shake(name="joe/1", token=signed(subscribe=["/news", "/jobs"]))
    assert second.login["reconnected"] is True
    speaker = Person(server).be(token=signed(publish=["/**"]))
    for channel in ("/chat/demo", "/chat/jobs", "/jobs", "/news", f"/ret/{first.login['replyId']}/3000001"):
        speaker.publish(channel, channel)
    assert data(second.take_all()) == ["/news", f"/ret/{first.login['replyId']}/3000001"]


@one_lane
def test_at_its_end_the_connect_says_to_log_in_again_and_nothing_is_lost(guarded: Callable[..., Server]) -> None:
    server = guarded("security.jwt_leeway_ms=0")
    person = Person(server).be("joe/1", token=signed(exp=soon(2)))
    person.subscribe("/chat/demo")
    connect = person.hold(ext={"ack": person.batch})
    (told,) = connect.response().messages
    assert told["error"] == f"403:client/joe/1:{EXPIRED}"
    assert told["advice"] == {"reconnect": "handshake", "interval": 0}
    again = person.connect(ext={"ack": person.batch})[-1]
    assert (again["error"], again["advice"]["reconnect"]) == (told["error"], "handshake")
    refused = person.send(person.message("/chat/demo", data=1))[0]
    assert refused["error"] == "403:token_expired:publish_denied"
    ann = Person(server).be("ann/1", token=signed(sub="ann"))
    ann.publish("/chat/demo", "meanwhile", ext={"publish": {"persistent": True}})
    assert refusal(person.shake(name="joe/1", token=signed(exp=5), resume=person.login["resume"]))[1] == EXPIRED
    new = Person(server)
    new.shake(name="joe/1", token=signed())
    assert new.login["reconnected"] is True
    assert data(new.take_all()) == ["meanwhile"]


@one_lane
def test_a_socket_hears_nothing_after_its_token(guarded: Callable[..., Server]) -> None:
    server = guarded("security.jwt_leeway_ms=0")
    socket = SocketClient(server)
    socket.handshake(ext={"session": {"token": signed(exp=soon(2))}})
    socket.connect()
    socket.subscribe("/chat/demo")
    told = socket.reply_to(socket.ask_connect())
    assert (told["error"].rpartition(":")[2], told["advice"]["reconnect"]) == (EXPIRED, "handshake")
    Person(server).be(token=signed()).publish("/chat/demo", 1)
    assert socket.socket.fence() == []


def test_what_was_granted_holds_after_a_restart(guarded: Callable[..., Server]) -> None:
    server = guarded()
    person = Person(server).be("joe/1", token=signed())
    person.subscribe("/chat/demo")
    server.kill()
    person.server = server = guarded(*server.store_sets, port=server.port)
    person.forget_connections()
    person.publish("/chat/demo", 1, ext={"publish": {"persistent": True}})
    assert data(person.take_all()) == [1]
    refused = person.send(person.message("/other", data=1))[0]
    assert refused["error"].startswith("403:")


@one_lane
def test_sessions_from_before_the_policy_have_to_log_in(guarded: Callable[..., Server], serve: Serve) -> None:
    server = serve()
    person = Person(server).be("joe/1")
    server.terminate()
    server = guarded(*server.store_sets, port=server.port)
    person.forget_connections()
    person.server = server
    told = person.connect(ext={"ack": person.batch})[-1]
    assert (told["successful"], told["advice"]["reconnect"]) == (False, "handshake")
    assert person.be("joe/1", token=signed()).login["reconnected"] is True


@one_lane
def test_a_server_with_keys_that_cannot_be_used_does_not_start(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("too short")
    for keys, told in ((tmp_path / "short", "at least 32 bytes"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(AssertionError, match=told):
            serve("security.policy=jwt", f"security.jwt_keys={keys}")


@one_lane
def test_keys_come_from_an_address(serve: Serve, tmp_path: Path) -> None:
    """The set is served by another Crewel, as a page of its own would be."""
    (tmp_path / "keys.json").write_text(key_set(one=rsa_key()))
    import http.server
    import threading
    from functools import partial

    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{web.server_address[1]}/keys.json"
            server = serve("security.policy=jwt", f"security.jwt_keys={address}")
            token = signed(rsa_key(), "RS256", "one")
            assert Person(server).be("joe/1", token=token).login["reconnected"] is False
            assert refusal(Person(server).shake(token=signed()))[1] == DENIED
        finally:
            web.shutdown()
            thread.join(10)


@one_lane
def test_while_the_keys_cannot_be_had_clients_are_told_to_come_again(serve: Serve, unused_tcp_port: int) -> None:
    server = serve("security.policy=jwt", f"security.jwt_keys=http://127.0.0.1:{unused_tcp_port}/")
    reply: Message = Person(server).shake(name="joe/1", token=signed())
    assert (reply["error"], reply["advice"]) == ("503:client/joe/1:resource.unavailable", {"reconnect": "handshake"})
    until(lambda: "cannot be fetched" in server.stderr)
