"""`crewel sessions` and `crewel cmd`, as they are typed."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from time import monotonic

import pytest

from tests.admin.desk import SETS, Receiver, publish
from tests.cli.command import assert_refused, crewel
from tests.cli.operators import Post
from tests.conftest import StartServer
from tests.functional.bayeux import held, in_time
from tests.functional.wire import until


def test_a_held_receiver_is_found_and_activated(post: Post, joe: Receiver) -> None:
    publish(post.server, "/a/b", 1)
    joe.reject(joe.take(), "user.update.holdback", "out of paper")
    publish(post.server, "/a/b", 2, first=1)
    post.receiver("ann/1", "/c")
    (found,) = post.lines("sessions", "list", "--held")
    assert (found["name"], found["holdback"]["reason"]) == ("client/joe/1", "out of paper")
    assert [each["name"] for each in post.lines("sessions", "list")] == ["client/ann/1", "client/joe/1"]
    assert [each["name"] for each in post.lines("sessions", "list", "--subject", "ann")] == ["client/ann/1"]
    assert [each["name"] for each in post.lines("sessions", "list", "--state", "on hold")] == ["client/joe/1"]
    assert post.lines("sessions", "list", "--state", "DEAD") == []
    (answer,) = post.lines("sessions", "skip", "joe/1")
    assert (answer["letters"], answer["active"]) == (1, False)
    (answer,) = post.lines("sessions", "activate", "client/joe/1")
    assert answer["active"] is True
    assert [message["data"] for message in joe.take()] == [1, 2]


def test_sessions_are_held_and_drained_for_people(post: Post, joe: Receiver) -> None:
    ended = post.run("sessions", "hold", "joe/1", "--reason", "lunch", "--code", "user.lunch", "--no-json")
    assert ended.out == "client/joe/1: on hold, 0 waiting\n"
    publish(post.server, "/a/b", 2)
    table = post.run("sessions", "list", "--no-json").out
    heading, row = table.splitlines()[:2]
    assert heading.split() == ["session", "state", "waiting", "subscriptions", "why;", "next"]
    assert row.split()[:6] == ["client/joe/1", "on", "hold,", "connected", "2", "/a/b"]
    assert "user.lunch: lunch, by admin since 2" in " ".join(table.split())
    assert "; ends at" in " ".join(table.split())
    heading, row = post.run("sessions", "list", "--no-json", "--api-state").out.splitlines()[:2]
    assert heading.split()[1:5] == ["state", "in", "the", "API"]
    assert row.split()[4] == "ALIVE"
    ended = post.run("sessions", "drain", "joe/1", "--no-json")
    assert ended.out == "client/joe/1: 2 became dead letters, 0 waiting\n"
    assert "lunch" in post.run("sessions", "show", "joe/1", "--no-json").out
    assert post.lines("sessions", "show", "joe/1")[0]["holdback"]["code"] == "user.lunch"
    assert joe.take() == []


def test_the_list_says_what_comes_next_and_a_retry_can_be_had_now(post: Post) -> None:
    name = "joe/1"
    joe = post.receiver(name, "/a/b", dispatcher={"retries": 3, "delay": 60_000, "absence": False})
    publish(post.server, "/a/b", 1)
    joe.reject(joe.take(), "communication.timeout")
    (session,) = post.lines("sessions", "list")
    assert (session["state"], session["retry"]["number"], session["retry"]["of"]) == ("POLLING", 1, 3)
    assert session["qos"]["dispatcher"] == {
        "retries": 3, "delay": 60_000, "factor": 1.0, "maxDelay": -1, "absence": False,
    }  # fmt: skip
    assert session["ends"]["why"] == "its client is away for longer than its timeout, 1 d"
    listed = "".join(post.run("sessions", "list", "--no-json").out.split())  # the column may fold within a word
    found = re.search(r"retry1of3at([^,]+),endsifallfail;endsat", listed)
    assert found, listed
    # Each answer computes the time from another clock: it may differ by a millisecond.
    assert abs(datetime.fromisoformat(found[1]).timestamp() * 1000 - session["retry"]["at"]) < 1000
    assert post.run("sessions", "retry", name, "--no-json").out == "client/joe/1: tried again\n"
    assert [message["data"] for message in joe.take()] == [0]
    assert post.run("sessions", "retry", name, "--no-json").out == "client/joe/1: nothing waited for a retry\n"


def test_what_waits_for_a_session_is_shown_and_stays(post: Post, joe: Receiver) -> None:
    publish(post.server, "/a/b", 3)
    first, second = post.lines("sessions", "peek", "joe/1", "--count", "2")
    assert (first["channel"], first["data"], second["data"]) == ("/a/b", 0, 1)
    ended = post.run("sessions", "peek", "client/joe/1", "--no-json")
    heading, row, *_, last = ended.out.splitlines()
    assert heading.split() == ["message", "published", "channel", "data"]
    assert row.split()[0] == first["ext"]["update"]["id"]
    assert row.split()[2:] == ["/a/b", "0"]
    assert datetime.fromisoformat(row.split()[1]).year >= 2026
    assert last == "3 of 3 waiting"
    assert [message["data"] for message in joe.take()] == [0, 1, 2]
    assert_refused(post.run("sessions", "peek", "unknown/1"), "there is no session client/unknown/1")


def test_sessions_are_pinged_and_killed(post: Post, joe: Receiver) -> None:
    joe.say()

    def is_answered() -> None:
        began = monotonic()
        before = held(post.server)
        connection = joe.ask_connect(ext={"ack": joe.batch})
        until(lambda: held(post.server) > before)
        process = post.start("sessions", "ping", "joe/1", "--json")
        connection.response()
        joe.take()
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert 0 < json.loads(out)["pingMs"] <= 1000 * (monotonic() - began) + 1

    in_time(is_answered)
    assert_refused(post.run("sessions", "ping", "joe/1"), "did not connect again")
    post.receiver("ann/1", "/c")
    assert (
        post.run("sessions", "kill", "joe/1", "ann/1", "--no-json").out == "client/joe/1: ended\nclient/ann/1: ended\n"
    )
    assert post.lines("sessions", "list") == []
    assert_refused(post.run("sessions", "show", "joe/1"), "there is no session client/joe/1")


def test_the_state_of_a_session_survives_the_server(start_server: StartServer, tmp_path: Path) -> None:
    post = Post(start_server(*SETS), tmp_path)
    joe = post.receiver("joe/1", "/a/b")
    post.lines("sessions", "hold", "joe/1", "--reason", "lunch")
    publish(post.server, "/a/b", 1)
    assert post.server.terminate() == 0
    again = start_server(*post.server.store_sets, *SETS)
    post.environ["CREWEL_URL"] = again.url
    (session,) = post.lines("sessions", "list", "--held")
    assert (session["holdback"]["reason"], session["waiting"], session["state"]) == ("lunch", 1, "POLLING")
    assert joe.id is not None


def test_a_command_prints_its_result(post: Post, joe: Receiver) -> None:
    publish(post.server, "/a/b", 2)

    def out(command: str) -> str:
        ended = post.run("cmd", command)
        assert (ended.status, ended.err) == (0, "")
        return ended.out

    assert out("__cmd:?nodeList") == "heron\n"
    assert out("__cmd:client/joe/1/?dispatcherActive=false") == "OK\n"
    assert out("__cmd:client/joe/1/?dispatcherActive") == "false\n"
    assert out("__cmd:client/joe/1/?holdback").startswith('{"active":false,"who":"admin"')
    peeked = out("__cmd:client/joe/1/?peekCallbackMessages=5")
    assert [json.loads(line)["data"] for line in peeked.splitlines()] == [0, 1]
    (whole,) = post.lines("cmd", "__cmd:?version", "--json")
    assert whole["command"] == "__cmd:/node/heron/?version"
    assert joe.id is not None


def test_a_wrong_command_is_one_line(post: Post) -> None:
    assert_refused(post.run("cmd", "__cmd:?versoin"), "did you mean version?")
    assert_refused(post.run("cmd", "version"), "must begin with __cmd:")
    assert_refused(post.run("cmd", "__cmd:client/joe/1/?killSession"), "client/joe/1, which is not here")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sessions", "show", "joe"), "joe is not the name of a session"),
        (("sessions", "kill", "joe/1/2"), "is not the name of a session"),
        (("sessions", "activate"), "NAME"),
        (("sessions", "dance", "joe/1"), "dance"),
        (("cmd",), "COMMAND"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = crewel(*arguments, directory=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err
