"""`crewel top`, as it is typed."""

from __future__ import annotations

import re

import pytest

from crewel.cli.top import _conditions, _store, bars, figure
from tests.admin.desk import Receiver
from tests.cli.operators import Post
from tests.functional.wire import until


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([0, 0], "▁▁"), ([None, 8.0, 4.0, 0.0], " █▅▁"), ([None], " "), ([0.1], "█")],
)
def test_bars(values: list[float | None], line: str) -> None:
    assert bars(values) == line


@pytest.mark.parametrize(
    ("value", "column", "shown"),
    [(None, "p99", "-"), (12.25, "p99", "12.2"), (300_000, "p99", "≥ 300,000"), (300_000, "sessions", "300,000")],
)
def test_figure(value: float | None, column: str, shown: str) -> None:
    assert figure(value, column) == shown


def test_top_says_what_is_unknown_while_the_store_is_away() -> None:
    away = {
        "kept": True,
        "trouble": "no answer within 3 s",
        "unknownSince": 1_790_000_000_000,
        "letters": None,
        "usedMemory": None,
    }
    assert (
        _store(away)
        == "no answer within 3 s; its memory and its dead letters are unknown since 2026-09-21T14:13:20.000Z"
    )
    assert _conditions({"connected": 2, "on hold": 1, "away": 1}) == "2 connected, 1 away; of these 1 on hold"
    assert _conditions({}) == "none"


def test_top_prints_what_is_wrong(post: Post, joe: Receiver) -> None:
    assert joe.id
    post.desk.post("/sessions/joe/1/hold", {"reason": "out of \x1b[31mpaper"})
    until(lambda: post.desk.get("/overview")["sessions"]["held"] == 1)  # the server keeps its count for some seconds
    ended = post.run("top", "--once", "--no-json")
    assert ended.status == 0
    assert "published /s" in ended.out
    assert re.search(r"BAD client/joe/1 is on hold: out of .*\(since 2\d{3}-", ended.out)
    assert "sessions: 1 connected; of these 1 on hold" in ended.out
    assert "\x1b" not in ended.out
    (overview,) = post.lines("top", "--once")
    assert overview["node"] == "heron"
    assert overview["sessions"]["held"] == 1
    post.desk.post("/sessions/joe/1/activate")

    def last() -> str:
        return post.run("top", "--once", "--no-json").out

    # Other tests have left troubles that are over: there is no waiting for the first one.
    until(lambda: "OVER client/joe/1 was on hold from 2" in last())
    assert ": last seen: out of " in " ".join(last().split())  # which is wrapped


def test_nodes_are_listed_in_words(post: Post) -> None:
    heading, node = post.run("nodes", "--no-json").out.splitlines()
    assert heading.split() == ["node", "state", "stored", "sessions", "since", "process"]
    assert node.split()[:2] == ["heron", "running"]
