"""The table of commands, cell by cell, against a real server."""

from __future__ import annotations

import re
from time import monotonic
from typing import Any

import pytest

from crewel.admin.command import Access
from crewel.admin.commands import COMMANDS
from crewel.admin.operation import Level
from crewel.version import VERSION
from tests.admin.desk import SETS, TOKEN, Desk, Receiver, audit, publish
from tests.conftest import StartServer
from tests.functional.bayeux import Client, held, in_time
from tests.functional.wire import until
from tests.server_process import Server

DATE = re.compile(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

# What each property that is only read answers, where joe/1 is subscribed to two channels, has three messages waiting and
# no connect held, and joe/2 is there too. A function says whether the answer is right.
NODE: dict[str, Any] = {
    "version": VERSION,
    "uptime": lambda seconds: 0 <= seconds < 3600,
    "serverTimestamp": DATE.fullmatch,
    "numNodes": 1,
    "nodeList": ["heron"],
    "numClients": lambda count: count >= 1,
    "clientList": lambda subjects: "JOE" in subjects and subjects == sorted(subjects),
    "clients": lambda text: "JOE" in text.split(","),
    "aliveCallbackClients": lambda names: "client/JOE/1" in names,
    "numSessions": lambda count: count >= 2,
    "sessionList": lambda names: {"client/JOE/1", "client/JOE/2"} <= set(names),
    "numTopics": lambda count: count >= 1,
    "topicList": lambda names: "CHANNEL" in names and not any(name.endswith("*") for name in names),
    "topics": lambda text: "CHANNEL" in text.split(","),
    "numSubscriptions": lambda count: count >= 2,
    "subscriptionList": lambda lines: {"client/JOE/1 CHANNEL", "client/JOE/1 CHANNEL/*"} <= set(lines),
    "numPublish": lambda count: count >= 3,
    "numUpdate": lambda count: count >= 0,
    "numWaiting": lambda count: count >= 3,
    "numDeadLetters": lambda count: count >= 0,
    "lastError": "",
    "usedMem": lambda size: 10_000_000 < size < 4_000_000_000,
    "freeMem": lambda size: size > 0,
    "totalMem": lambda size: size > 100_000_000,
    "dump": lambda whole: whole["node"] == "heron" and whole["topics"]["CHANNEL"] == 1,
}
SUBJECT: dict[str, Any] = {
    "numSessions": 2,
    "sessionList": ["client/JOE/1", "client/JOE/2"],
    "sessions": "1,2",
    "uptime": lambda seconds: 0 <= seconds < 3600,
    "creationDate": DATE.fullmatch,
    "subjectQueueNumMsgs": 0,
    "subjectQueueMaxMsgs": 1000,
    "peekSubjectMessages": [],
}
SESSION: dict[str, Any] = {
    "id": "/node/heron/client/JOE/1",
    "loginName": "JOE",
    "publicSessionId": 1,
    "qos": {
        "name": "client/JOE/1",
        "ack": True,
        "update": True,
        "settle": "message",
        "ackWait": -1,
        "maxOpen": 0,
        "pingInterval": 0,
        "burst": {"maxEntries": None, "maxBytes": 524_288},
        "ptp": True,
        "persistent": False,
        "timeout": 86_400_000,
        "maxSessions": 10,
        "dispatcher": {"retries": 0, "delay": 60_000, "factor": 1.0, "maxDelay": -1, "absence": False},
        "queue": {"maxEntries": 50, "maxBytes": 10_485_760, "onOverflow": "deadMessage"},
    },
    "callbackConfigured": False,
    "connectionState": "ALIVE",
    "loginDate": DATE.fullmatch,
    "uptime": lambda seconds: 0 <= seconds < 3600,
    "sessionTimeoutExpireDate": DATE.fullmatch,
    "pollingSinceDate": "",
    "stalled": False,
    "lastCallbackException": "",
    "numCallbackExceptions": 0,
    "pingRoundTripDelay": -1,
    "cbQueueNumMsgs": 3,
    "cbQueueNumBytes": lambda size: size > 60,
    "cbQueueMaxMsgs": 50,
    "cbQueueMaxBytes": 10_485_760,
    "peekCallbackMessages": lambda found: [each["data"] for each in found] == [0],
    "holdback": None,
    "numSubscriptions": 2,
    "subscribedTopics": ["CHANNEL", "CHANNEL/*"],
    "subscriptions": "CHANNEL,CHANNEL/*",
    "subscriptionDump": {"CHANNEL": [], "CHANNEL/*": []},
}
TOPIC: dict[str, Any] = {
    "stateStr": "ALIVE",
    "isUnconfigured": False,
    "isAlive": True,
    "isUnreferenced": False,
    "isSoftErased": False,
    "isDead": False,
    "numSubscribers": 1,
    "subscribers": ["client/JOE/1"],
    "groups": [],
    "numOfHistoryEntries": 2,
    "historyMaxEntries": 2,
    "peekHistoryMessages": lambda found: [each["data"] for each in found] == [2],
    "numOfQueuedEntries": 3,
    "readonly": False,
}
EXPECTED = {Level.NODE: NODE, Level.SUBJECT: SUBJECT, Level.SESSION: SESSION, Level.TOPIC: TOPIC}
ROWS = [(row.level, row.name) for row in COMMANDS]
READ = [(row.level, row.name) for row in COMMANDS if row.access is Access.READ]


class Place:
    """The world that the expectations are about, and the command for each property in it."""

    def __init__(self, server: Server) -> None:
        self.subject, self.channel = "table", "/table/one"
        self.one = Receiver(server).be(f"{self.subject}/1", queue={"maxEntries": 50})
        self.one.subscribe(self.channel, f"{self.channel}/*")
        self.two = Receiver(server).be(f"{self.subject}/2")
        self.one.publish(self.channel, ext={"publish": {"administrative": True, "history": {"maxEntries": 2}}})
        publish(server, self.channel, 3)

    def command(self, level: Level, name: str) -> str:
        path = {
            Level.NODE: "",
            Level.SUBJECT: f"client/{self.subject}/",
            Level.SESSION: f"client/{self.subject}/1/",
            Level.TOPIC: f"topic{self.channel}/",
        }[level]
        return f"__cmd:{path}?{name}"


@pytest.fixture(scope="module")
def place(shared: Server) -> Place:
    return Place(shared)


def test_every_row_has_an_expectation_or_is_tried_below() -> None:
    expected = [(level, name) for level, names in EXPECTED.items() for name in names]
    assert sorted(expected) == sorted(READ)
    assert len(ROWS) == len(set(ROWS))


@pytest.mark.parametrize(("level", "name"), READ)
def test_a_property_is_read_with_its_expected_value(desk: Desk, place: Place, level: Level, name: str) -> None:
    result = desk.cmd(place.command(level, name))
    expected = named(EXPECTED[level][name], place)
    if callable(expected):
        assert expected(anonymised(result, place)), result
    else:
        assert result == expected


def named(expected: Any, place: Place) -> Any:
    """The expectation with the names of this place."""
    if isinstance(expected, str):
        return expected.replace("JOE", place.subject).replace("CHANNEL", place.channel)
    if isinstance(expected, dict):
        return {named(name, place): named(value, place) for name, value in expected.items()}
    return [named(each, place) for each in expected] if isinstance(expected, list) else expected


def anonymised(result: Any, place: Place) -> Any:
    """The answer with the names of the expectations."""
    if isinstance(result, str):
        return result.replace(place.channel, "CHANNEL").replace(place.subject, "JOE")
    if isinstance(result, list):
        return sorted(anonymised(each, place) for each in result) if result and isinstance(result[0], str) else result
    if isinstance(result, dict):
        return {name: {anonymised(key, place): value for key, value in each.items()} if name == "topics" else each
                for name, each in result.items()}  # fmt: skip
    return result


@pytest.mark.parametrize(("level", "name"), [row for row in READ if not row[1].startswith("peek")])
def test_a_read_only_property_takes_no_value(desk: Desk, place: Place, level: Level, name: str) -> None:
    assert f"{name} takes none" in desk.refused(place.command(level, name) + "=5")


@pytest.mark.parametrize("level", list(Level))
def test_an_unknown_property_is_refused_with_the_known_ones(desk: Desk, place: Place, level: Level) -> None:
    message = desk.refused(place.command(level, "numSubscriber5"))
    assert f"which no {level} has" in message
    for row in COMMANDS:
        if row.level is level:
            assert row.name in message


def test_a_misspelt_property_is_refused_with_the_nearest_name(desk: Desk, place: Place) -> None:
    assert "did you mean dispatcherActive?" in desk.refused(place.command(Level.SESSION, "dispatcheractive"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("__cmd:client/nobody/?numSessions", "client/nobody, which has no session and no messages here"),
        ("__cmd:client/nobody/1/?killSession", "the session client/nobody/1, which is not here"),
        ("__cmd:client/table/9/?id", "the session client/table/9, which is not here"),
        ("__cmd:topic/never/heard/?subscribers", "the channel /never/heard, which is not known"),
        ("__cmd:client/table/1/?dispatcherActive=maybe", "'maybe', but dispatcherActive takes true or false"),
        ("__cmd:client/table/1/?dispatcherActive=", "dispatcherActive takes true or false"),
        ("__cmd:client/table/1/?dispatcherActive=true&false", "dispatcherActive takes true or false"),
        ("__cmd:client/table/1/?peekCallbackMessages=0", "takes a whole number from 1 to 1000000"),
        ("__cmd:client/table/1/?peekCallbackMessages=-1", "takes a whole number from 1"),
        ("__cmd:client/table/1/?peekCallbackMessages=1.5", "takes a whole number from 1"),
        ("__cmd:client/table/1/?peekCallbackMessages=99999999999999", "takes a whole number from 1"),
        ("__cmd:client/table/1/?removeFromCallbackQueue", "lacks a value"),
        ("__cmd:client/table/1/?removeFromCallbackQueue=x", "takes a whole number from 1"),
        ("__cmd:client/table/1/?killSession=now", "killSession takes none"),
        ("__cmd:client/table/?peekSubjectMessages=x", "takes a whole number from 1"),
        ("__cmd:topic/table/one/?peekHistoryMessages=0", "takes a whole number from 1"),
        ("__cmd:topic/table/one/?destroyDelay=soon", "destroyDelay takes milliseconds, or -1"),
        ("__cmd:topic/table/one/?destroyDelay=-2", "destroyDelay takes milliseconds, or -1"),
        ("__cmd:topic/table/one/?destroyDelay=", "destroyDelay takes milliseconds, or -1"),
        ("__cmd:topic/table/one/?eraseTopic=now", "eraseTopic takes true or false"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_wrong_command_is_refused_by_name(desk: Desk, command: str, words: str) -> None:
    assert words in desk.refused(command)


@pytest.mark.parametrize("command", [None, 5, True, [], {"command": 1}, "x" * 5000, "\ud800?x"])
def test_a_command_must_be_text(desk: Desk, command: Any) -> None:
    desk.refused(command)


def test_every_command_is_listed_with_its_roles(desk: Desk) -> None:
    listed = desk.get("/commands")["commands"]
    assert [(each["level"], each["name"]) for each in listed] == [(row.level, row.name) for row in COMMANDS]
    roles = {each["name"]: (each["role"], each["writeRole"]) for each in listed if each["level"] == "session"}
    assert roles["dispatcherActive"] == ("view", "operate")
    assert roles["drainCallbackQueue"] == ("operate", None)
    assert roles["killSession"] == ("destroy", None)
    needy = {each["name"] for each in listed if each["needsValue"]}
    assert needy == {"removeFromCallbackQueue", "unSubscribeBySessionName"}


def test_a_command_is_answered_in_its_absolute_form(desk: Desk, place: Place) -> None:
    answered = desk.post("/commands", {"command": place.command(Level.SESSION, "peekCallbackMessages=2")})
    assert answered["command"] == "__cmd:/node/heron/client/table/1/?peekCallbackMessages=2"
    assert [each["data"] for each in answered["result"]] == [0, 1]
    assert desk.post("/commands", {"command": answered["command"]}) == answered


# What is done


def test_a_session_is_held_back_and_activated(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    active = f"__cmd:client/{subject}/1/?dispatcherActive"
    assert desk.cmd(active) is True
    assert desk.cmd(f"{active}=false") == "OK"
    assert desk.cmd(active) is False
    holdback = desk.cmd(f"__cmd:client/{subject}/1/?holdback")
    assert (holdback["who"], holdback["active"]) == ("admin", False)
    publish(server, channel, 2)
    assert receiver.take() == []
    assert desk.cmd(f"__cmd:client/{subject}/1/?cbQueueNumMsgs") == 2
    assert desk.cmd(f"{active}=TRUE") == "OK"
    assert desk.cmd(active) is True
    assert [message["data"] for message in receiver.take()] == [0, 1]


def test_a_receiver_holds_itself_back_and_the_held_message_comes_first(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    publish(server, channel, 3)
    messages = receiver.take()
    receiver.reject(messages[:1], "user.update.holdback", "later")
    receiver.say(*({"id": message["id"], "state": "OK"} for message in messages[1:]))
    holdback = desk.cmd(f"__cmd:client/{subject}/1/?holdback")
    assert (holdback["code"], holdback["reason"], holdback["id"]) == (
        "user.update.holdback",
        "later",
        messages[0]["id"],
    )
    publish(server, channel, 1, first=9)
    assert receiver.take() == []
    desk.cmd(f"__cmd:client/{subject}/1/?dispatcherActive=true")
    again = receiver.take()
    assert [message["data"] for message in again] == [0, 9]
    assert again[0]["id"] == messages[0]["id"]


def test_the_held_message_is_skipped(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    publish(server, channel, 2)
    messages = receiver.take()
    receiver.reject(messages[:1], "user.update.holdback", "poison")
    assert desk.cmd(f"__cmd:client/{subject}/1/?skipCallbackMessage") == 1
    (letter,) = until(lambda: desk.letters(f"receiver={subject}"))
    assert (letter["message"], letter["errorCode"], letter["reason"]) == (
        messages[0]["id"], "user.update.holdback", "poison",
    )  # fmt: skip
    assert desk.cmd(f"__cmd:client/{subject}/1/?dispatcherActive") is False
    # The next one is not the message for which the receiver is on hold.
    assert desk.cmd(f"__cmd:client/{subject}/1/?skipCallbackMessage") == 1
    _, other = until(lambda: found if len(found := desk.letters(f"receiver={subject}")) == 2 else None)
    assert (other["errorCode"], other["reason"]) == ("resource.maintenance.skipped", "an operator has skipped it")


def test_the_queue_is_drained_to_dead_letters(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    publish(server, channel, 4)
    assert desk.cmd(f"__cmd:client/{subject}/1/?drainCallbackQueue") == 4
    until(lambda: len(desk.letters(f"receiver={subject}")) == 4)
    assert desk.cmd(f"__cmd:client/{subject}/1/?cbQueueNumMsgs") == 0
    assert receiver.take() == []


def test_the_queue_is_cleared_without_dead_letters(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    publish(server, channel, 5)
    path = f"__cmd:client/{subject}/1/"
    assert desk.cmd(f"{path}?removeFromCallbackQueue=2") == 2
    assert [each["data"] for each in desk.cmd(f"{path}?peekCallbackMessages=9")] == [2, 3, 4]
    assert desk.cmd(f"{path}?clearCallbackQueue") == 3
    assert desk.cmd(f"{path}?cbQueueNumMsgs") == 0
    assert receiver.take() == []
    assert desk.letters(f"receiver={subject}") == []


def test_sent_and_open_messages_count_as_queued(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    publish(server, channel, 3)
    count = f"__cmd:client/{subject}/1/?cbQueueNumMsgs"
    assert desk.cmd(count) == 3
    messages = receiver.take()
    assert desk.cmd(count) == 3
    receiver.say()  # acknowledged, and open
    assert desk.cmd(count) == 3
    receiver.accept(messages[:2])
    assert desk.cmd(count) == 1


def test_a_ping_is_answered_by_the_next_connect(desk: Desk, receiver: Receiver, subject: str) -> None:
    receiver.say()

    def pinged() -> float:
        began = monotonic()
        before = held(receiver.server)
        connection = receiver.ask_connect(ext={"ack": receiver.batch})
        until(lambda: held(receiver.server) > before)
        pinging = desk.send("POST", "/commands", {"command": f"__cmd:client/{subject}/1/?pingClientCallbackServer"})
        released = connection.response().messages
        assert [message["channel"] for message in released] == ["/meta/connect"]
        receiver.take()
        answer = pinging.response()
        assert answer.status == 200, answer
        took: float = answer.json()["result"]
        assert 0 < took <= 1000 * (monotonic() - began) + 1
        return took

    took = in_time(pinged)
    assert desk.cmd(f"__cmd:client/{subject}/1/?pingRoundTripDelay") == took


def test_a_ping_without_an_answer_fails(desk: Desk, receiver: Receiver, subject: str) -> None:
    receiver.say()
    response = desk.ask("POST", "/commands", {"command": f"__cmd:client/{subject}/1/?pingClientCallbackServer"})
    assert (response.status, response.json()["errorCode"]) == (504, "communication.noConnection")


def test_a_killed_session_leaves_dead_letters(
    desk: Desk, server: Server, receiver: Receiver, subject: str, channel: str
) -> None:
    publish(server, channel, 2)
    assert desk.cmd(f"__cmd:client/{subject}/1/?killSession") == 1
    reply = receiver.connect(advice={"timeout": 0})[-1]
    assert reply["error"].startswith("402")
    letters = until(lambda: found if len(found := desk.letters(f"receiver={subject}")) == 2 else None)
    assert {letter["errorCode"] for letter in letters} == {"communication.noConnection.dead"}
    desk.refused(f"__cmd:client/{subject}/1/?id")


def test_a_client_is_killed_with_all_its_sessions(desk: Desk, server: Server, subject: str) -> None:
    for number in (1, 2):
        Receiver(server).be(f"{subject}/{number}")
    assert desk.cmd(f"__cmd:client/{subject}/?killClient") == 2
    assert "which has no session" in desk.refused(f"__cmd:client/{subject}/?numSessions")


def test_a_session_is_refreshed(desk: Desk, server: Server, subject: str) -> None:
    Receiver(server).be(f"{subject}/1", timeout=60_000)
    expires = f"__cmd:client/{subject}/1/?sessionTimeoutExpireDate"
    before = desk.cmd(expires)
    until(lambda: desk.cmd(f"__cmd:client/{subject}/1/?refreshSession") == "OK" and desk.cmd(expires) > before)


def test_deliveries_to_receivers_are_counted(desk: Desk, server: Server, receiver: Receiver, channel: str) -> None:
    before = desk.cmd("__cmd:?numUpdate")
    publish(server, channel, 2)
    receiver.accept(until(receiver.take))
    until(lambda: desk.cmd("__cmd:?numUpdate") >= before + 2)


def test_garbage_is_collected(desk: Desk) -> None:
    assert desk.cmd("__cmd:?gc") >= 0


def test_a_client_that_has_not_come_yet_is_polling(desk: Desk, server: Server, subject: str) -> None:
    person = Receiver(server)
    person.shake(name=f"{subject}/1")
    path = f"__cmd:client/{subject}/1/"
    assert desk.cmd(f"{path}?connectionState") == "POLLING"
    assert DATE.fullmatch(desk.cmd(f"{path}?pollingSinceDate"))
    person.take()
    assert desk.cmd(f"{path}?connectionState") == "ALIVE"
    assert desk.cmd(f"{path}?pollingSinceDate") == ""


def test_a_failed_client_is_stalled_and_shown_so(desk: Desk, server: Server, subject: str, channel: str) -> None:
    receiver = Receiver(server).be(f"{subject}/1", dispatcher={"retries": -1, "delay": 60_000})
    receiver.subscribe(channel)
    publish(server, channel, 1)
    receiver.reject(receiver.take(), "communication.noConnection", "my database is away")
    path = f"__cmd:client/{subject}/1/"
    assert desk.cmd(f"{path}?connectionState") == "POLLING"
    assert desk.cmd(f"{path}?stalled") is True
    assert desk.cmd(f"{path}?numCallbackExceptions") == 1
    assert DATE.fullmatch(desk.cmd(f"{path}?pollingSinceDate"))
    assert desk.cmd(f"{path}?pollingSinceDate") <= desk.cmd("__cmd:?serverTimestamp")
    assert desk.cmd(f"{path}?lastCallbackException") == "communication.noConnection: my database is away"
    assert desk.get(f"/sessions/{subject}/1")["lastFailure"]["reason"] == "my database is away"
    assert desk.cmd(f"{path}?clearLastCallbackException") == "OK"
    assert desk.cmd(f"{path}?lastCallbackException") == ""
    assert desk.cmd(f"{path}?stalled") is True


def test_a_client_that_is_gone_shows_since_when_it_is_polling(start_server: StartServer, subject: str) -> None:
    server = start_server(*SETS, "bayeux.max_interval_ms=50")
    desk = Desk(server)
    receiver = Receiver(server).be(f"{subject}/1")
    last = desk.cmd("__cmd:?serverTimestamp")
    receiver.say()
    path = f"__cmd:client/{subject}/1/"
    until(lambda: desk.cmd(f"{path}?connectionState") == "POLLING")
    assert DATE.fullmatch(since := desk.cmd(f"{path}?pollingSinceDate"))
    assert desk.cmd(f"{path}?loginDate") <= last <= since <= desk.cmd("__cmd:?serverTimestamp")
    assert f"client/{subject}/1" not in desk.cmd("__cmd:?aliveCallbackClients")


def test_commands_work_on_sessions_without_acknowledgement(
    desk: Desk, server: Server, subject: str, channel: str
) -> None:
    client = Client(server)
    client.handshake(ext={"session": {"name": f"{subject}/1", "queue": {"maxEntries": 7}}})
    client.connect()
    path = f"__cmd:client/{subject}/1/"
    assert desk.cmd(f"{path}?cbQueueMaxMsgs") == 7
    assert desk.cmd(f"{path}?cbQueueMaxBytes") == -1
    assert desk.cmd(f"{path}?cbQueueNumMsgs") == 0
    assert desk.cmd(f"{path}?dispatcherActive") is True
    assert "does not acknowledge" in desk.refused(f"{path}?dispatcherActive=false")
    connection = client.hold()
    assert desk.cmd(f"{path}?callbackConfigured") is True
    assert desk.cmd(f"{path}?sessionTimeoutExpireDate") == ""
    desk.cmd(f"{path}?killSession")
    assert connection.response().messages[-1]["advice"]["reconnect"] == "none"


# Over Bayeux


def call(client: Client, data: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the remote call answers, and the reply to its publish."""
    reply = client.publish("/service/__cmd", data)
    (told,) = [each for each in client.connect(advice={"timeout": 0}, ext={"ack": 0}) + reply if "data" in each]
    return told, reply[-1]


def test_an_operator_commands_by_remote_call(server: Server, place: Place) -> None:
    operator = Receiver(server).be(token=TOKEN)
    told, reply = call(operator, {"command": "__cmd:client/table/?sessionList"})
    assert reply["successful"] is True
    assert (told["successful"], told["id"]) == (True, reply["id"])
    assert told["data"] == {
        "command": "__cmd:/node/heron/client/table/?sessionList",
        "result": ["client/table/1", "client/table/2"],
    }


@pytest.mark.parametrize("data", [None, "__cmd:?version", {}, {"command": 5}, {"command": "__cmd:?nothing"}, [1]])
def test_a_bad_remote_call_is_refused_with_the_reason(server: Server, data: Any) -> None:
    told, _ = call(Receiver(server).be(token=TOKEN), data)
    assert told["successful"] is False
    assert told["data"]["errorCode"] == "user.illegalArgument"
    assert told["data"]["message"].startswith("command: ")


def test_a_remote_call_without_operator_rights_is_refused(server: Server) -> None:
    client = Receiver(server).be()
    message = client.message("/service/__cmd", data={"command": "__cmd:?version"})
    (reply,) = client.send(message)
    assert reply["successful"] is False
    assert reply["error"].startswith("403:user.security.authorization.notAuthorized:")


def test_the_audit_names_the_operator_and_the_command(
    desk: Desk, server: Server, receiver: Receiver, subject: str
) -> None:
    desk.cmd(f"__cmd:client/{subject}/1/?dispatcherActive=false")
    desk.cmd(f"__cmd:client/{subject}/1/?dispatcherActive")
    entries = until(lambda: [line for line in audit(server) if f"client/{subject}/1" in line])
    assert len(entries) == 1
    assert '"who":"admin"' in entries[0]
    assert "dispatcherActive=false" in entries[0]
    assert TOKEN not in server.stderr
    assert receiver.id is not None
    assert receiver.id not in server.stderr


def test_no_command_shows_a_secret(desk: Desk, place: Place) -> None:
    said = [str(desk.cmd(place.command(level, name))) for level, name in READ]
    for secret in (place.one.id, place.one.login["resume"], place.one.cookie, TOKEN):
        assert secret
        assert not any(secret in each for each in said)


def test_dead_letters_are_counted(desk: Desk, dead: list[str]) -> None:
    assert desk.cmd("__cmd:?numDeadLetters") >= len(dead)
