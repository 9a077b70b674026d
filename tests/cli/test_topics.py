"""`crewel topics`, as it is typed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewel.topics import WORDS
from tests.admin.desk import Desk, Receiver
from tests.cli.command import assert_refused, crewel
from tests.cli.operators import Post
from tests.declared import ROOT
from tests.functional.wire import until
from tests.server_process import Server


@pytest.fixture(autouse=True)
def _erased(office: Server) -> Iterator[None]:
    yield
    desk = Desk(office)
    for topic in desk.get("/topics?pattern=/topics/**")["topics"]:
        desk.ask("DELETE", f"/topics{topic['channel']}?force=true")


def published(post: Post, channel: str, count: int, *options: str) -> None:
    for number in range(count):
        assert post.run("pub", channel, str(number), "--history=3", *options) == (0, "", "")


def test_topics_are_listed_and_shown(post: Post) -> None:
    published(post, "/topics/a", 5)
    published(post, "/topics/b/c", 1, "--destroy-delay=1h")
    both = {topic["channel"]: topic for topic in post.lines("topics", "list", "--pattern=/topics/**")}
    assert list(both) == ["/topics/a", "/topics/b/c"]
    (shown,) = post.lines("topics", "show", "/topics/a", "--json")
    assert shown == both["/topics/a"] | {"may": "destroy"}
    assert (shown["state"], shown["history"]) == ("ALIVE", {"entries": 3, "maxEntries": 3})
    assert both["/topics/b/c"]["destroyDelay"] == 3_600_000
    assert post.lines("topics", "list", "--pattern=/topics/*", "--state=SOFTERASED") == []
    assert_refused(post.run("topics", "list", "--state=DEAD"), "state: must be one of UNCONFIGURED, ALIVE")


def test_list_and_show_print_tables_for_people(post: Post) -> None:
    published(post, "/topics/a", 1)
    post.run("pub", "/topics/plain", "1")
    heading, first, second = post.run("topics", "list", "--pattern=/topics/*", "--no-json").out.splitlines()
    assert heading.split() == ["channel", "state", "history", "waiting", "subscribers"]
    assert first.split() == ["/topics/a", "in", "use", "1", "of", "3", "0", "0"]
    assert second.split() == ["/topics/plain", "no", "subscribers", "none", "0", "0"]
    assert '{"entries": 1, "maxEntries": 3}' in post.run("topics", "show", "/topics/a", "--no-json").out


def test_topics_are_asked_for_by_the_words_of_the_list_or_by_those_of_the_api(post: Post) -> None:
    published(post, "/topics/a", 1)
    post.run("pub", "/topics/plain", "1")
    for state in ("no subscribers", "unused", "UNREFERENCED"):
        (found,) = post.lines("topics", "list", "--pattern=/topics/*", f"--state={state}")
        assert (found["channel"], found["state"]) == ("/topics/plain", "UNREFERENCED")
    refusal = post.run("topics", "list", "--state=dead")
    assert refusal.status == 2
    assert "--state takes one of in use, no subscribers" in refusal.err
    _, row, _ = post.run("topics", "list", "--pattern=/topics/*", "--no-json", "--api-state").out.splitlines()
    assert row.split()[:4] == ["/topics/a", "in", "use", "ALIVE"]


def test_the_page_has_the_words_of_the_list() -> None:
    script = (ROOT / "static/console/topics.js").read_text()
    states = script.partition("const STATES = {")[2].partition("};")[0]
    assert re.findall(r'^ +"?([\w ]+)"?: \[', states, re.MULTILINE) == list(WORDS.values())


def test_show_of_an_unknown_topic_ends_with_1(post: Post) -> None:
    assert_refused(post.run("topics", "show", "/topics/never"), "there is no topic /topics/never")
    assert_refused(post.run("topics", "erase", "/topics/never", "--yes"), "there is no topic /topics/never")


def test_a_history_is_printed_in_its_order(post: Post) -> None:
    published(post, "/topics/a", 5)
    assert [line["data"] for line in post.lines("topics", "history", "/topics/a")] == [2, 3, 4]
    assert [line["data"] for line in post.lines("topics", "history", "/topics/a", "--count=2")] == [3, 4]
    assert [line["data"] for line in post.lines("topics", "history", "/topics/a", "--newest-first")] == [4, 3, 2]
    ended = post.run("topics", "clear", "/topics/a", "--no-json")
    assert ended.out == "/topics/a: 3 messages removed\n"
    assert post.lines("topics", "history", "/topics/a") == []
    (shown,) = post.lines("topics", "show", "/topics/a")
    assert shown["history"] == {"entries": 0, "maxEntries": 3}


def test_what_waits_of_an_erased_topic_is_delivered_unless_it_is_forced(post: Post) -> None:
    joe = post.receiver("joe/1", "/topics/*")
    for force in (False, True):
        published(post, "/topics/a", 2, "--persistent")
        ended = post.run("topics", "erase", "/topics/a", "--yes", "--no-json", *(["--force"] if force else []))
        end = "erased" if force else "erased; queued messages are still delivered"
        assert (ended.status, ended.out) == (0, f"/topics/a: {end}\n")
        if not force:
            (state,) = post.lines("topics", "show", "/topics/a")
            assert (state["state"], state["queued"], state["history"]["entries"]) == ("SOFTERASED", 2, 0)
        messages = joe.take()
        data = [message["data"] for message in messages if message["ext"]["update"].get("state") != "ERASED"]
        assert data == ([] if force else [0, 1])
        assert len(messages) == len(data) + 1  # and the notice
        joe.say(*({"id": message["ext"]["update"]["id"], "state": "OK"} for message in messages))
        until(lambda: post.run("topics", "show", "/topics/a").status == 1)


def test_each_erased_topic_is_a_json_line_for_scripts(post: Post) -> None:
    published(post, "/topics/a", 1)
    published(post, "/topics/b", 1)
    lines = post.lines("topics", "erase", "/topics/a", "/topics/b", "--yes")
    assert lines == [{"channel": "/topics/a", "state": "DEAD"}, {"channel": "/topics/b", "state": "DEAD"}]


def test_unusual_channel_names_work(post: Post) -> None:
    name = "/topics/a b/{c}#$~(1)"
    published(post, name, 1)
    (shown,) = post.lines("topics", "show", name)
    assert shown["channel"] == name
    assert json.loads(post.run("cmd", f"__cmd:topic{name}/?numOfHistoryEntries").out) == 1


def test_a_receiver_is_seen_by_its_topic(post: Post, joe: Receiver) -> None:
    post.run("pub", "/a/b", "1")
    (shown,) = post.lines("topics", "show", "/a/b")
    assert (shown["subscribers"], shown["exactSubscribers"], shown["state"]) == (1, 1, "ALIVE")
    joe.take()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topics", "show"), "CHANNEL"),
        (("topics", "show", "/a/*"), "not the name of a channel: /a/*"),
        (("topics", "erase", "a", "--yes"), "not the name of a channel: a"),
        (("topics", "erase", "/a"), "erasing a topic needs --yes"),
        (("topics", "history", "/a", "--count=0"), "--count"),
        (("topics", "dance"), "dance"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = crewel(*arguments, directory=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err
