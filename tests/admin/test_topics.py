"""What operators see of topics and subjects, and do to them: by commands, and by HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from crewel.admin.rest import ROUTES
from tests.admin.desk import TOKEN, Desk, Receiver, audit, publish
from tests.functional.bayeux import Message
from tests.functional.wire import until
from tests.server_process import Server

HISTORY = {"publish": {"history": {"maxEntries": 3}, "destroyDelay": 7000}}


def waiting(to: str, **destination: Any) -> Message:
    """The `ext` of a message that waits for its destination."""
    return {"publish": {"destination": [{"to": to, "forceQueuing": True, **destination}]}}


@pytest.fixture
def speaker(server: Server) -> Receiver:
    return Receiver(server).be()


@pytest.fixture
def topic(desk: Desk, speaker: Receiver, channel: str) -> str:
    """A channel with five messages, of which the history keeps three."""
    for number in range(5):
        speaker.publish(channel, number, ext=HISTORY)
    return channel


@pytest.fixture
def queue(desk: Desk, speaker: Receiver, channel: str, subject: str) -> str:
    """A subject that nobody is, and for which three messages wait."""
    for number in range(3):
        speaker.publish(channel, number, ext=waiting(f"client/{subject}"))
    return subject


def data(messages: list[Any]) -> list[Any]:
    return [message["data"] for message in messages]


# Topics by commands


def test_a_history_is_looked_at_and_cleared(desk: Desk, topic: str) -> None:
    path = f"__cmd:topic{topic}/"
    assert desk.cmd(f"{path}?numOfHistoryEntries") == 3
    assert data(desk.cmd(f"{path}?peekHistoryMessages=2")) == [4, 3]
    assert data(desk.cmd(f"{path}?peekHistoryMessages=9")) == [4, 3, 2]
    assert desk.cmd(f"{path}?isAlive") is True
    assert desk.cmd(f"{path}?clearHistoryQueue") == 3
    assert desk.cmd(f"{path}?numOfHistoryEntries") == 0
    assert desk.cmd(f"{path}?peekHistoryMessages") == []
    assert desk.cmd(f"{path}?stateStr") == "UNREFERENCED"
    assert desk.cmd(f"{path}?historyMaxEntries") == 3


def test_the_destroy_delay_is_changed(desk: Desk, topic: str) -> None:
    delay = f"__cmd:topic{topic}/?destroyDelay"
    assert desk.cmd(delay) == 7000
    assert desk.cmd(f"{delay}=5000") == "OK"
    assert desk.cmd(delay) == 5000
    assert desk.cmd(f"{delay}=-1") == "OK"
    assert desk.get(f"/topics{topic}")["destroyDelay"] == -1
    assert desk.cmd(f"__cmd:topic{topic}/?historyMaxEntries") == 3  # as it was
    assert desk.cmd(f"{delay}=0") == "OK"
    assert desk.cmd(f"__cmd:topic{topic}/?clearHistoryQueue") == 3
    until(lambda: "which is not known" in desk.ask("POST", "/commands", {"command": delay}).json().get("message", ""))


def test_an_erased_topic_is_shown_while_messages_wait(
    desk: Desk, server: Server, receiver: Receiver, channel: str
) -> None:
    publish(server, channel, 2)
    assert channel in desk.cmd("__cmd:?topicList")
    assert desk.cmd(f"__cmd:topic{channel}/?eraseTopic") is True
    assert desk.cmd(f"__cmd:topic{channel}/?isSoftErased") is True
    assert channel not in desk.cmd("__cmd:?topicList")
    assert channel not in desk.cmd("__cmd:?topics").split(",")
    messages = receiver.take()
    assert data(messages) == [0, 1, None]
    receiver.say(*({"id": each["ext"]["update"]["id"], "state": "OK"} for each in messages))
    until(lambda: desk.ask("GET", f"/topics{channel}").status == 404)
    assert "which is not known" in desk.refused(f"__cmd:topic{channel}/?stateStr")


def test_a_forced_erase_drops_what_waits(desk: Desk, server: Server, receiver: Receiver, channel: str) -> None:
    publish(server, channel, 2)
    assert desk.cmd(f"__cmd:topic{channel}/?eraseTopic=true") is True
    assert data(receiver.take()) == [None]


def test_a_topic_with_subscribers_and_no_publish_is_unconfigured(desk: Desk, receiver: Receiver, channel: str) -> None:
    assert desk.cmd(f"__cmd:topic{channel}/?isUnconfigured") is True
    assert channel not in desk.cmd("__cmd:?topicList")
    assert desk.get(f"/topics{channel}")["exactSubscribers"] == 1
    assert receiver.take() == []


def test_subscriptions_to_a_topic_are_ended(desk: Desk, server: Server, receiver: Receiver, channel: str) -> None:
    other = Receiver(server).be(f"{receiver.login['name'].split('/')[-2]}/2")
    other.subscribe(channel, f"{channel}/**")
    path = f"__cmd:topic{channel}/"
    assert len(names := desk.cmd(f"{path}?subscribers")) == 2
    assert desk.cmd(f"{path}?unSubscribeBySessionName={names[0]}") == 1
    assert desk.cmd(f"{path}?unSubscribeBySessionName={names[0]}") == 0
    assert desk.cmd(f"{path}?subscribers") == names[1:]
    for nobody in ("client/nobody/1", "no name", ""):
        assert "which is not here" in desk.refused(f"{path}?unSubscribeBySessionName={nobody}")
    assert "lacks a value" in desk.refused(f"{path}?unSubscribeBySessionName")
    assert desk.cmd(f"{path}?unSubscribeAll") == 1
    assert "which is not known" in desk.refused(f"{path}?unSubscribeAll")
    assert desk.cmd(f"__cmd:{names[1]}/?subscribedTopics") == [f"{channel}/**"]
    publish(server, channel, 1)
    publish(server, f"{channel}/below", 1, first=1)
    assert (receiver.take(), data(other.take())) == ([], [1])


# Topics by HTTP


def test_a_topic_is_shown(desk: Desk, topic: str) -> None:
    shown = desk.get(f"/topics{topic}")
    assert shown["epoch"]
    assert int(shown["newest"]) > 0
    assert shown | {"epoch": "", "newest": ""} == {
        "channel": topic,
        "state": "ALIVE",
        "condition": "in use",
        "history": {"entries": 3, "maxEntries": 3},
        "readonly": False,
        "destroyDelay": 7000,
        "epoch": "",
        "newest": "",
        "queued": 0,
        "subscribers": 0,
        "exactSubscribers": 0,
        "groups": [],
        "diesIn": None,
        "may": "destroy",
    }


def test_an_unreferenced_topic_shows_when_it_dies(desk: Desk, speaker: Receiver, channel: str) -> None:
    speaker.publish(channel, 1)
    shown = desk.get(f"/topics{channel}")
    assert (shown["state"], shown["epoch"], shown["newest"]) == ("UNREFERENCED", None, None)
    assert 0 < shown["diesIn"] <= 60_000


def test_a_topic_that_a_pattern_hears_is_in_use_although_nothing_keeps_it(
    desk: Desk, server: Server, speaker: Receiver, channel: str
) -> None:
    speaker.publish(f"{channel}/heard", 1)
    listener = Receiver(server).be()
    listener.subscribe(f"{channel}/*")
    speaker.publish(f"{channel}/deep/silent", 1)
    stands = {each["channel"]: each["condition"] for each in desk.get(f"/topics?pattern={channel}/**")["topics"]}
    assert stands[f"{channel}/heard"] == "in use"
    assert stands[f"{channel}/deep/silent"] == "no subscribers"
    asked = quote("no subscribers")
    found = desk.get(f"/topics?pattern={channel}/**&state=UNREFERENCED&condition={asked}")["topics"]
    assert [each["channel"] for each in found] == [f"{channel}/deep/silent"]
    listener.disconnect()


def test_the_topics_of_the_server_itself_are_asked_for_or_left_out(desk: Desk, server: Server, channel: str) -> None:
    listener = Receiver(server).be(token=TOKEN)
    listener.subscribe("/__sys__notices")
    listener.subscribe(channel)

    def seen(path: str, key: str, name: str) -> dict[str, set[bool]]:
        rows = {asked: desk.get(f"{path}{asked}")[key] for asked in ("", "internal=true", "internal=false")}
        return {asked: {each[name].startswith("/__sys__") for each in some} for asked, some in rows.items()}

    for path, key, name in (("/topics?", "topics", "channel"), ("/prefixes?", "prefixes", "prefix")):
        assert seen(path, key, name) == {"": {True, False}, "internal=true": {True}, "internal=false": {False}}
    listener.disconnect()


def test_topics_are_paged_and_filtered(desk: Desk, speaker: Receiver, channel: str) -> None:
    names = [f"{channel}/{letter}" for letter in "abcde"]
    for name in names:
        speaker.publish(name, 1, ext=HISTORY)
    seen, after = [], ""
    for _ in range(3):
        page = desk.get(f"/topics?pattern={channel}/**&count=2{after and '&after=' + quote(after)}")
        seen += [topic["channel"] for topic in page["topics"]]
        after = page["next"]
    assert (seen, after) == (names, "")
    assert desk.get(f"/topics?pattern={channel}/**&state=UNREFERENCED")["topics"] == []
    assert len(desk.get(f"/topics?pattern={channel}/*&state=ALIVE")["topics"]) == 5
    assert [each["channel"] for each in desk.get(f"/topics?pattern={names[1]}")["topics"]] == [names[1]]


def test_a_history_is_read_and_emptied(desk: Desk, topic: str) -> None:
    read = desk.get(f"/history{topic}")
    assert (read["channel"], read["entries"], data(read["messages"])) == (topic, 3, [4, 3, 2])
    assert data(desk.get(f"/history{topic}?count=2&newestFirst=false")["messages"]) == [3, 4]
    assert all(message["id"] for message in read["messages"])
    assert desk.ask("DELETE", f"/history{topic}").json() == {"channel": topic, "state": "UNREFERENCED", "cleared": 3}
    assert desk.get(f"/history{topic}")["messages"] == []


def test_a_topic_is_erased(desk: Desk, topic: str) -> None:
    assert desk.ask("DELETE", f"/topics{topic}?force=false").json() == {"channel": topic, "state": "DEAD"}
    for method, path in (("GET", "/topics"), ("DELETE", "/topics"), ("GET", "/history"), ("DELETE", "/history")):
        response = desk.ask(method, path + topic)
        assert (response.status, response.json()["message"]) == (404, f"there is no topic {topic}")


@pytest.mark.parametrize("name", ["/a//b", "/a/*", "/*", "/a%00b"])
def test_a_topic_of_no_channel_is_404(desk: Desk, name: str) -> None:
    response = desk.ask("GET", f"/topics{name}")
    assert response.status == 404
    assert "is not the name of a channel" in response.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/topics?state=DEAD", "state: must be one of UNCONFIGURED, ALIVE"),
        ("GET", "/topics?pattern=a", "pattern: must be a channel or a pattern"),
        ("GET", "/topics?count=0", "count: must be a whole number"),
        ("DELETE", "/topics/a?force=yes", "force: must be true or false"),
        ("DELETE", "/topics/a?forse=true", "forse: there is no such field; did you mean force?"),
        ("GET", "/history/a?count=1001", "count: must be a whole number"),
        ("GET", "/subjects?count=x", "count: must be a whole number"),
    ],
)
def test_a_wrong_field_is_refused_by_name(desk: Desk, method: str, path: str, words: str) -> None:
    response = desk.ask(method, path)
    assert response.status == 400
    assert words in response.json()["message"]


def test_another_method_is_405_with_the_allowed_ones(desk: Desk) -> None:
    response = desk.ask("POST", "/topics/a/b")
    assert (response.status, response.header("Allow")) == (405, "DELETE, GET")


def test_the_description_has_topics_and_histories(desk: Desk) -> None:
    paths = desk.get("/openapi.json")["paths"]
    assert {"/admin/api/topics/{channel}", "/admin/api/subjects/{subject}/messages"} <= paths.keys()
    described = paths["/admin/api/topics/{channel}"]["delete"]
    assert [each["name"] for each in described["parameters"]] == ["channel", "channel", "force", "reason"]
    assert len({operation["operationId"] for path in paths.values() for operation in path.values()}) == len(ROUTES)


def test_options_of_subscriptions_are_shown(desk: Desk, server: Server, subject: str, channel: str) -> None:
    joe = Receiver(server).be(f"{subject}/1", ptp=False)
    asked = {f"{channel}/plain": {}, f"{channel}/some": {"filter": "data"}, f"{channel}/shared": {"group": "cooks"}}
    for name, options in asked.items():
        (reply,) = joe.send(joe.message("/meta/subscribe", subscription=name, ext={"subscribe": options}))
        assert reply["successful"] is True, reply
    shown = desk.get(f"/sessions/{subject}/1")
    assert shown["subscriptionOptions"] == {name: [options] for name, options in asked.items() if options}
    assert shown["ptp"] is False
    dump = desk.cmd(f"__cmd:client/{subject}/1/?subscriptionDump")
    assert dump == {name: [options] if options else [] for name, options in asked.items()}
    joe.publish(f"{channel}/shared", 1)
    joe.publish(f"{channel}/shared", 2)
    (group,) = desk.get(f"/topics{channel}/shared")["groups"]
    assert (group["name"], group["pattern"], group["members"]) == (
        "cooks",
        f"{channel}/shared",
        [f"client/{subject}/1"],
    )
    assert desk.cmd(f"__cmd:topic{channel}/shared/?groups") == ["cooks"]


# Subjects


def test_a_subject_queue_is_peeked_and_cleared(desk: Desk, queue: str) -> None:
    path = f"__cmd:client/{queue}/"
    assert desk.cmd(f"{path}?subjectQueueNumMsgs") == 3
    peeked = desk.cmd(f"{path}?peekSubjectMessages=2")
    assert data(peeked) == [0, 1]
    assert all(each["ext"]["update"]["sender"].startswith("client/anonymous/") for each in peeked)
    assert (desk.cmd(f"{path}?numSessions"), desk.cmd(f"{path}?sessionList")) == (0, [])
    assert (desk.cmd(f"{path}?uptime"), desk.cmd(f"{path}?creationDate")) == (0, "")
    assert desk.cmd(f"{path}?killClient") == 0
    assert desk.cmd(f"{path}?clearSubjectQueue") == 3
    assert "no session and no messages here" in desk.refused(f"{path}?subjectQueueNumMsgs")


def test_a_forced_erase_drops_messages_of_subject_queues(desk: Desk, queue: str, channel: str) -> None:
    assert desk.get(f"/topics{channel}")["queued"] == 3
    assert desk.ask("DELETE", f"/topics{channel}").json()["state"] == "SOFTERASED"
    assert desk.cmd(f"__cmd:client/{queue}/?subjectQueueNumMsgs") == 3
    assert desk.ask("DELETE", f"/topics{channel}?force=true").json()["state"] == "DEAD"
    assert desk.ask("GET", f"/subjects/{queue}").status == 404


def test_a_subject_queue_goes_to_its_first_session(desk: Desk, server: Server, queue: str) -> None:
    joe = Receiver(server)
    joe.shake(name=f"{queue}/1", update=True, settle="message")
    messages: list[Message] = []
    until(lambda: messages.extend(joe.take()) or len(messages) == 3)
    assert data(messages) == [0, 1, 2]
    assert desk.cmd(f"__cmd:client/{queue}/?subjectQueueNumMsgs") == 0


def test_a_subject_is_shown(desk: Desk, server: Server, queue: str) -> None:
    shown = {
        "name": f"client/{queue}",
        "subject": queue,
        "sessions": [],
        "blocked": False,
        "queued": 3,
        "maxEntries": 1000,
        "causes": [],
    }
    assert desk.get(f"/subjects/{queue}") == {**shown, "may": "destroy"}
    assert shown in desk.get("/subjects?count=1000")["subjects"]
    messages = desk.get(f"/subjects/{queue}/messages?count=2")
    assert (messages["name"], messages["queued"], data(messages["messages"])) == (f"client/{queue}", 3, [0, 1])
    assert desk.ask("DELETE", f"/subjects/{queue}/messages").json() == {"name": f"client/{queue}", "cleared": 3}
    for method, below in (("GET", ""), ("GET", "/messages"), ("DELETE", "/messages"), ("POST", "/kill")):
        response = desk.ask(method, f"/subjects/{queue}{below}")
        assert (response.status, response.json()["message"]) == (404, f"there is no subject {queue} here")


def test_topics_are_counted_by_the_next_segment_of_their_names(desk: Desk, speaker: Receiver, channel: str) -> None:
    for below in ("/b", "/b/1", "/b/1/x", "/a"):
        speaker.publish(channel + below, 1, ext=HISTORY)
    speaker.publish(channel + "b", 1, ext=HISTORY)
    a, b = (
        {"prefix": f"{channel}/{name}", "topics": topics, "deeper": topics - 1, "history": topics, "queued": 0}
        for name, topics in (("a", 1), ("b", 3))
    )
    path = f"/prefixes?below={quote(channel)}"
    assert desk.get(path) == {"below": f"{channel}/", "prefixes": [a, b], "next": ""}
    assert desk.get(f"{path}&count=1") == {"below": f"{channel}/", "prefixes": [a], "next": a["prefix"]}
    assert desk.get(f"{path}&after={quote(a['prefix'])}")["prefixes"] == [b]
    first = desk.get("/prefixes?count=1000")
    assert f"/{channel.split('/')[1]}" in [each["prefix"] for each in first["prefixes"]]


def test_subjects_are_paged_and_their_sessions_ended(desk: Desk, server: Server, subject: str) -> None:
    for number in (1, 2):
        Receiver(server).be(f"{subject}/{number}")
    Receiver(server).be(f"{subject}x/1")
    page = desk.get(f"/subjects?count=1&after={subject[:-1]}~")
    found = desk.get(f"/subjects?count=1000&after={page['next']}")["subjects"] if page["next"] else []
    names = [each["name"] for each in (*page["subjects"], *found)]
    assert names == sorted(names)
    assert desk.get(f"/subjects/{subject}")["sessions"] == [f"client/{subject}/1", f"client/{subject}/2"]
    assert desk.post(f"/subjects/{subject}/kill") == {"name": f"client/{subject}", "killed": 2}
    assert desk.ask("GET", f"/subjects/{subject}").status == 404
    assert desk.get(f"/subjects/{subject}x")["sessions"] == [f"client/{subject}x/1"]


def test_logins_of_a_blocked_subject_are_refused(desk: Desk, server: Server, subject: str) -> None:
    joe = Receiver(server).be(f"{subject}/1")
    blocked = f"__cmd:client/{subject}/?blockClientLogin"
    assert desk.cmd(blocked) is False
    assert desk.cmd(f"{blocked}=true") == "OK"
    assert desk.cmd(blocked) is True
    assert joe.take() == []  # what it has goes on
    for session in ({"name": f"{subject}/2"}, {"name": subject}, {"resume": joe.login["resume"]}):
        reply = Receiver(server).shake(**session)
        assert reply["successful"] is False
        assert reply["error"].startswith("403:")
        assert reply["ext"]["session"]["errorCode"] == "communication.noConnection.serverDeny"
        assert reply["advice"]["reconnect"] == "none"
    Receiver(server).be(f"{subject}x/1")
    assert desk.cmd(f"__cmd:client/{subject}/?blockClientAndResetConnections") == 1
    assert desk.get(f"/subjects/{subject}")["blocked"] is True
    assert desk.cmd(f"{blocked}=false") == "OK"
    assert desk.ask("GET", f"/subjects/{subject}").status == 404
    Receiver(server).be(f"{subject}/1")


@pytest.mark.parametrize("command", ["blockClientLogin=true", "blockClientAndResetConnections"])
def test_a_command_blocks_a_subject_before_its_first_login(
    desk: Desk, server: Server, subject: str, command: str
) -> None:
    assert desk.cmd(f"__cmd:client/{subject}/?{command}") == ("OK" if "=" in command else 0)
    assert Receiver(server).shake(name=f"{subject}/1")["error"].startswith("403:")
    assert desk.cmd(f"__cmd:client/{subject}/?blockClientLogin=false") == "OK"
    Receiver(server).be(f"{subject}/1")


@pytest.mark.parametrize("command", ["blockClientLogin", "blockClientLogin=false", "killClient", "numSessions"])
def test_other_commands_need_a_subject_that_is_there(desk: Desk, subject: str, command: str) -> None:
    refused = desk.ask("POST", "/commands", {"command": f"__cmd:client/{subject}/?{command}"})
    assert refused.status == 400
    assert f"client/{subject}, which has no session and no messages here" in refused.json()["message"]


def test_the_audit_names_what_was_done_to_topics(desk: Desk, server: Server, topic: str, queue: str) -> None:
    for path in (f"/history{topic}", f"/subjects/{queue}/messages", f"/topics{topic}?force=true"):
        assert desk.ask("DELETE", path).status == 200

    def entries() -> list[Any] | None:
        lines = [json.loads(line) for line in audit(server)]
        found = [each["message"] for each in lines if each.get("about") in (topic, f"client/{queue}")]
        return found if len(found) == 3 else None

    assert until(entries) == ["operator: clear topic", "operator: clear subject", "operator: erase topic"]
