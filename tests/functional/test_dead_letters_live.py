"""Dead letters as they are made: on the live channel, in the functions of services, at the webhook, in the figures."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.functional.bayeux import Client, Message, data
from tests.functional.hook import Hook
from tests.functional.people import Person
from tests.functional.wire import Connection, figures, until
from tests.security.issuer import secret_file, signed
from tests.server_process import ROOT, Server, serving

DEAD = "/__sys__deadMessage"
ADMIN = "the-admin-token-of-tests"
QUICK = (f"admin.token={ADMIN}", "delivery.commit_ms=20", "bayeux.timeout_ms=300", "node.name=heron")
PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True, "clientProperties": {"colour": "blue"}}}}

Serve = StartServer
_numbers = itertools.count(1)


@pytest.fixture
def serve(start_server: StartServer) -> Serve:
    """Start a server for this test alone. The lanes have no part in any of this."""
    return start_server


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that several tests use, each with names and channels of its own."""
    with serving(tmp_path_factory.mktemp("quick"), *QUICK) as server:
        yield server


@pytest.fixture
def number() -> int:
    """What makes names and channels those of this test."""
    return next(_numbers)


class Operator(Person):
    """Listens to dead letters."""

    def listen(self, **session: Any) -> Operator:
        self.be(token=ADMIN, **session)
        self.subscribe(DEAD)
        return self

    def letters(self, count: int, channel: str = "") -> list[Message]:
        """Take so many, however many connects that needs; of one channel, if others use the server too."""
        taken: list[Message] = []

        def are_there() -> bool:
            taken.extend(each for each in self.take(timeout=300) if not channel or _origin(each) == channel)
            return len(taken) >= count

        until(are_there)
        assert len(taken) == count
        return taken


def _origin(letter: Message) -> str:
    channel: str = letter["ext"]["update"]["clientProperties"]["__oid"]
    return channel


class Plain(Operator):
    """The same without acknowledging."""

    acknowledges = False


class Receiver(Person):
    """Takes messages and says what it thinks of them."""

    def listen(self, name: str, channel: str) -> Receiver:
        self.be(name, update=True, settle="message")
        self.subscribe(channel)
        return self

    def refuse(self, count: int, code: str = "user.update.error", reason: str = "I do not want this") -> list[Message]:
        """Take so many messages and report each."""
        taken: list[Message] = []
        until(lambda: taken.extend(self.take()) or len(taken) >= count)
        statuses = [{"id": each["ext"]["update"]["id"], "errorCode": code, "message": reason} for each in taken]
        self.publish("/service/update", statuses)
        return taken


def made(server: Server, code_class: str) -> float:
    return figures(server).get(f'crewel_letters_total{{class="{code_class}"}}', 0)


def test_operators_see_a_letter_with_all_that_it_says_whether_or_not_they_asked_for_updates(
    quick: Server, number: int
) -> None:
    channel, before = f"/a{number}", made(quick, "user.update")
    operators = [kind(quick).listen(**session) for kind in (Operator, Plain) for session in ({}, {"update": True})]
    receiver = Receiver(quick).listen(f"joe{number}/1", channel)
    publisher = Person(quick).be(f"ann{number}/1")
    publisher.publish(channel, {"text": "hello"}, **PERSISTENT)
    (message,) = receiver.refuse(1)
    ((letter, *others),) = zip(*(operator.letters(1, channel) for operator in operators), strict=True)
    assert [other["ext"]["update"] for other in others] == [letter["ext"]["update"]] * 3
    assert (letter["channel"], letter["data"]) == (DEAD, {"text": "hello"})
    update = letter["ext"]["update"]
    assert update["sender"] == "client/__sys__"
    assert update["rcvTimestamp"].isdecimal()
    assert update["id"] != message["ext"]["update"]["id"]
    properties = update["clientProperties"]
    assert properties.pop("__deadId").replace("-", "").isdecimal()
    assert properties == {
        "__oid": channel,
        "__key": {"oid": channel},
        "__qos": {"clientProperties": {"colour": "blue"}, "sender": f"client/ann{number}/1", "persistent": True},
        "__rcvTimestamp": message["ext"]["update"]["rcvTimestamp"],
        "__deadMessageReason": "I do not want this",
        "__receiver": f"/node/heron/client/joe{number}/1",
        "__errorCode": "user.update.error",
        "__attempts": 1,
    }
    assert made(quick, "user.update") == before + 1
    for each in operators:
        each.disconnect()


def test_a_code_that_no_receiver_may_report_stays_with_the_letter_as_it_was_given(quick: Server, number: int) -> None:
    channel, operator = f"/a{number}", Operator(quick).listen()
    receiver = Receiver(quick).listen(f"joe{number}/1", channel)
    publisher = Client(quick).start()
    for code, qos in {"resource.exhausted": PERSISTENT, "resource." + "x" * 300: {}}.items():
        publisher.publish(channel, code, **qos)
        receiver.refuse(1, code, "")
    told = [each["ext"]["update"]["clientProperties"] for each in operator.letters(2, channel)]
    operator.disconnect()
    kept = ["resource.exhausted", "resource." + "x" * 118 + "…"]
    assert [(each["__errorCode"], each["__errorCodeGiven"]) for each in told] == [
        ("user.update.internalError", text) for text in kept
    ]


def test_nobody_else_hears_them(quick: Server, number: int) -> None:
    channel, operator = f"/a{number}", Operator(quick).listen()
    someone = Person(quick).be(f"eve{number}/1")
    reply = someone.send(someone.message("/meta/subscribe", subscription=[DEAD]))[0]
    assert reply["error"] == "403:denied_by_security_policy:create_denied" or reply["error"].endswith(
        "subscribe_denied"
    )
    someone.subscribe("/**", "/*")
    receiver = Receiver(quick).listen(f"joe{number}/1", channel)
    Client(quick).start().publish(channel, 1, **PERSISTENT)
    receiver.refuse(1)
    operator.letters(1, channel)
    heard = [each["channel"] for each in someone.take_all()]
    assert [each for each in heard if each == channel or each.startswith("/__sys__")] == [channel]
    refused = operator.send(operator.message(DEAD, data="forged"))[-1]
    assert refused["error"].startswith("403:")
    for each in (operator, someone):
        each.disconnect()


def test_under_tokens_it_is_the_operators_who_hear_them(serve: Serve, tmp_path: Path) -> None:
    server = serve("security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}", *QUICK)
    everything = {"subscribe": ["/**"], "publish": ["/**"]}
    someone = Person(server).be("joe/2", token=signed(**everything))
    denied = someone.send(someone.message("/meta/subscribe", subscription=DEAD))[0]
    assert denied["error"].startswith("403:")
    operator = Person(server).be("joe/3", token=signed(operator=True))
    operator.subscribe(DEAD)
    receiver = Receiver(server)
    receiver.be("joe/1", update=True, settle="message", token=signed(**everything))
    receiver.subscribe("/a")
    someone.publish("/a", 1, **PERSISTENT)
    receiver.refuse(1)
    assert data(until(lambda: operator.take(timeout=300))) == [1]


def test_who_takes_over_the_session_of_an_operator_hears_no_letters(quick: Server, number: int) -> None:
    channel, name = f"/a{number}", f"op{number}/1"
    operator = Operator(quick).listen(name=name)
    other = Person(quick)
    assert other.shake(name=name, resume=operator.login["resume"])["successful"]
    watching = Operator(quick).listen()
    receiver = Receiver(quick).listen(f"joe{number}/1", channel)
    Client(quick).start().publish(channel, 1, **PERSISTENT)
    receiver.refuse(1)
    watching.letters(1, channel)
    assert other.take_all() == []
    for each in (watching, other):
        each.disconnect()


def test_after_a_restart_an_operator_shows_the_token_again_and_goes_on(serve: Serve) -> None:
    before = serve(*QUICK)
    operator = Operator(before).listen(name="op/1")
    Receiver(before).listen("joe/1", "/a")
    before.terminate()
    server = serve(*before.store_sets, *QUICK, port=before.port)
    operator.forget_connections()
    reply = operator.connect(ext={"ack": operator.batch})[-1]
    assert reply["error"] == "403:client/op/1:user.security.authentication.expired"
    assert reply["advice"]["reconnect"] == "handshake"
    again = Operator(server)
    assert again.shake(name="op/1", token=ADMIN)["successful"]
    assert again.login["reconnected"]
    again.take()
    receiver = Receiver(server)
    assert receiver.shake(name="joe/1", update=True, settle="message")["successful"]
    receiver.take()
    Client(server).start().publish("/a", 1, **PERSISTENT)
    receiver.refuse(1)
    assert data(again.letters(1)) == [1]


def test_a_letter_that_cannot_be_delivered_makes_no_other(serve: Serve) -> None:
    server = serve(*QUICK)
    operator = Operator(server).listen(name="op/1", update=True, settle="message", queue={"maxEntries": 2})
    receiver = Receiver(server).listen("joe/1", "/a")
    publisher = Client(server).start()
    for number in range(5):
        publisher.publish("/a", number, **PERSISTENT)
    receiver.refuse(5)
    until(lambda: figures(server).get('crewel_letters_not_shown_total{to="channel"}') == 3)
    taken = operator.letters(2)
    statuses = [{"id": each["ext"]["update"]["id"], "errorCode": "user.update.error"} for each in taken]
    operator.publish("/service/update", statuses)
    operator.disconnect()
    until(lambda: figures(server)["crewel_sessions"] == 2)
    now = figures(server)
    assert now["crewel_letters_kept"] == made(server, "user.update") == 5
    assert now["crewel_letters_shown_total"] == 5


def test_letters_of_a_full_queue_and_of_an_ended_session_are_seen_too(serve: Serve) -> None:
    server = serve(*QUICK)
    operator = Operator(server).listen()
    receiver = Person(server).be("joe/1", queue={"maxEntries": 2})
    receiver.subscribe("/a")
    publisher = Client(server).start()
    for number in range(3):
        publisher.publish("/a", number, **PERSISTENT)
    (letter,) = operator.letters(1)
    assert letter["ext"]["update"]["clientProperties"]["__errorCode"] == "resource.overflow.queue.entries"
    receiver.disconnect()
    properties = [each["ext"]["update"]["clientProperties"] for each in operator.letters(2)]
    assert {each["__errorCode"] for each in properties} == {"communication.noConnection.dead"}
    assert made(server, "resource.overflow") == 1
    assert made(server, "communication.noConnection") == 2


def test_a_letter_that_was_sent_again_and_came_back_says_so(serve: Serve) -> None:
    server = serve(*QUICK)
    operator, receiver = Operator(server).listen(), Receiver(server).listen("joe/1", "/a")
    Client(server).start().publish("/a", 1, **PERSISTENT)
    receiver.refuse(1)
    (first,) = operator.letters(1)
    dead_id = first["ext"]["update"]["clientProperties"]["__deadId"]
    with Connection(server) as admin:
        path, token = "/admin/api/dead-letters", {"Authorization": f"Bearer {ADMIN}"}
        assert admin.post(f"{path}/redrive", {"ids": [dead_id]}, token).json()["redriven"] == 1
        (again,) = receiver.refuse(1, "user.update.deadMessage")
        assert again["ext"]["update"]["clientProperties"]["__redriveOf"] == dead_id
        (second,) = operator.letters(1)
        properties = second["ext"]["update"]["clientProperties"]
        assert (properties["__redriveOf"], properties["__returns"]) == (dead_id, 1)
        assert properties["__errorCode"] == "user.update.deadMessage"
        assert admin.post(f"{path}/discard", {"ids": [properties["__deadId"]]}, token).status == 200
    now = figures(server)
    assert now['crewel_letters_redriven_total{outcome="moved"}'] == 1
    assert (now["crewel_letters_returned"], now["crewel_letters_discarded_total"]) == (1, 1)
    assert now["crewel_letters_kept"] == 0


def test_functions_of_services_are_told(serve: Serve) -> None:
    server = serve(*QUICK, service="tests.functional.letters_service")
    watcher = Client(server).start()
    watcher.subscribe("/seen/**")
    receiver = Receiver(server).listen("joe/1", "/a")
    publisher = Client(server).start()
    publisher.publish("/a", "hello", **PERSISTENT)
    publisher.publish("/a", "again", ext={"publish": {}})
    receiver.refuse(2)
    heard: list[Message] = []
    until(lambda: heard.extend(m for m in watcher.connect(advice={"timeout": 300}) if "data" in m) or len(heard) == 4)
    at_once = [each["data"] for each in heard if each["channel"] == "/seen/at-once"]
    assert sorted(at_once) == sorted(
        ["/node/heron/client/joe/1", "user.update.error", text] for text in ("again", "hello")
    )
    later = [each["data"] for each in heard if each["channel"] == "/seen/later"]
    assert sorted((qos, stored) for _, qos, stored in ((d, json.dumps(q), s) for d, q, s in later)) == [
        ('{"clientProperties": {"colour": "blue"}}', True),
        ("{}", False),
    ]


def test_the_example_of_the_page_hears_of_a_letter(serve: Serve, tmp_path: Path) -> None:
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "dead-letters.md").read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "watch.py").write_text(example)
    server = serve(*QUICK, service=["watch", "tests.functional.letters_service"])
    watcher = Client(server).start()
    watcher.subscribe("/seen/later")
    receiver = Receiver(server).listen("joe/1", "/orders")
    Client(server).start().publish("/orders", {"pizza": 20}, **PERSISTENT)
    receiver.refuse(1, reason="too many")
    until(lambda: data(watcher.connect(advice={"timeout": 300})))
    assert server.terminate() == 0
    heard = "/node/heron/client/joe/1 user.update.error too many {'pizza': 20}"
    assert until(lambda: heard in server.stdout_after_ready)


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.close()


Hooked = Callable[..., tuple[Receiver, Client, Server]]


@pytest.fixture
def hooked(serve: Serve, hook: Hook) -> Hooked:
    """Start a server that tells this hook, with a receiver and a publisher."""

    def start(*sets: str) -> tuple[Receiver, Client, Server]:
        server = serve(*QUICK, f"delivery.dead_letter_webhook={hook.url}", *sets)
        return Receiver(server).listen("joe/1", "/a"), Client(server).start(), server

    return start


def test_the_webhook_is_told_what_a_letter_says(hooked: Hooked, hook: Hook) -> None:
    receiver, publisher, server = hooked("delivery.dead_letter_webhook_token=sesame")
    publisher.publish("/a", {"text": "hello"}, **PERSISTENT)
    (message,) = receiver.refuse(1)
    until(lambda: figures(server)["crewel_letters_posted_total"] == 1)
    ((authorization, (letter,)),) = hook.requests
    assert authorization == "Bearer sesame"
    assert letter.pop("id").replace("-", "").isdecimal()
    assert letter == {
        "message": message["ext"]["update"]["id"],
        "channel": "/a",
        "receiver": "/node/heron/client/joe/1",
        "errorCode": "user.update.error",
        "reason": "I do not want this",
        "attempts": 1,
        "data": {"text": "hello"},
        "ext": {},
        "sender": "",
        "rcvTimestamp": message["ext"]["update"]["rcvTimestamp"],
        "persistent": True,
        "qos": {"clientProperties": {"colour": "blue"}},
    }


def test_what_the_webhook_could_not_take_is_told_again(hooked: Hooked, hook: Hook) -> None:
    hook.statuses = [500, 429]
    receiver, publisher, server = hooked()
    publisher.publish("/a", 1, **PERSISTENT)
    receiver.refuse(1)
    until(lambda: figures(server)["crewel_letters_posted_total"] == 1)
    assert [authorization for authorization, _ in hook.requests] == [None] * 3
    assert len({letter["id"] for letter in hook.taken}) == 1
    assert figures(server)["crewel_webhook_failures_total"] == 2
    assert "hidden" not in server.stderr


def test_what_the_webhook_refuses_is_counted_and_left(hooked: Hooked, hook: Hook) -> None:
    hook.statuses = [404, 302]
    receiver, publisher, server = hooked()
    for number in (1, 2):
        publisher.publish("/a", number, **PERSISTENT)
        receiver.refuse(1)
        until(lambda: figures(server)["crewel_letters_not_posted_total"] == number)  # noqa: B023 - waited for here
    publisher.publish("/a", 3, **PERSISTENT)
    receiver.refuse(1)
    until(lambda: figures(server)["crewel_letters_posted_total"] == 1)
    assert [letter["data"] for letter in hook.taken] == [1, 2, 3]


def test_a_webhook_that_nobody_answers_holds_nothing_up(serve: Serve) -> None:
    server = serve(
        *QUICK, "delivery.dead_letter_webhook=http://127.0.0.1:9/", "delivery.dead_letter_webhook_timeout_ms=50"
    )
    operator, receiver = Operator(server).listen(), Receiver(server).listen("joe/1", "/a")
    Client(server).start().publish("/a", 1, **PERSISTENT)
    receiver.refuse(1)
    operator.letters(1)
    until(lambda: figures(server)["crewel_webhook_failures_total"] > 0)
