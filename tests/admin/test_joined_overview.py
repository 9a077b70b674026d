"""The overviews of several nodes as one."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

from crewel.admin.joined_overview import joined
from crewel.bayeux.codec import encode, reread

FINDING = {"level": "bad", "title": "x", "cause": "x", "advice": "x", "link": "/", "count": 1}


def view(node: str, **fields: Any) -> dict[str, Any]:
    return {
        "node": node,
        "samples": {"at": [], "published": [], "p99": []},
        "sessions": {"count": 2, "states": {"ALIVE": 1, "POLLING": 1}, "queued": 7},
        "groups": {"working": [], "empty": []},
        "findings": [],
        **fields,
    }


def test_figures_are_added_up() -> None:
    told = joined(view("a"), [view("b", sessions={"count": 3, "states": {"ALIVE": 2, "DEAD": 1}, "queued": 7})])
    assert told["sessions"] == {"count": 5, "states": {"ALIVE": 3, "POLLING": 1, "DEAD": 1}, "queued": 7}
    assert (told["node"], told["nodes"]) == ("a", ["a", "b"])


def test_samples_are_joined_with_those_of_their_moment() -> None:
    own = {"at": [10_000.0, 15_000.0, 20_000.0], "published": [1.0, nan, 3.0], "p99": [7.0, nan, 5.0]}
    other = {"at": [8_000.0, 13_000.0], "published": [10.0, 20.0], "p99": [9.0, None]}
    told = joined(view("a", samples=own), [view("b", samples=other)])["samples"]
    assert told["at"] == own["at"]
    assert told["published"] == [11.0, 20.0, 23.0]
    assert told["p99"][0] == 9.0
    assert isnan(told["p99"][1])
    assert told["p99"][2] == 5.0
    late = {"at": [1_000.0], "published": [10.0], "p99": [9.0]}
    assert joined(view("a", samples=own), [view("b", samples=late)])["samples"]["published"][0] == 1.0


def test_findings_have_their_node_and_those_of_the_store_come_once() -> None:
    held, full = FINDING | {"key": "held"}, FINDING | {"key": "store-nearly-full", "level": "warn"}
    told = joined(view("a", findings=[held, full]), [view("b", findings=[held, full])])["findings"]
    assert [(each["key"], each["node"]) for each in told] == [("held", "a"), ("held", "b"), ("store-nearly-full", "a")]


def test_group_is_without_members_only_if_it_is_at_all_nodes() -> None:
    empty = FINDING | {"key": "group-empty"}
    here = view("a", findings=[empty], groups={"working": [], "empty": [["/a", "x", 5, 0], ["/a", "y", 3, 1]]})
    there = view("b", groups={"working": [["/a", "x"]], "empty": [["/a", "y", 4, 2]]})
    told = joined(here, [there])
    assert reread(encode(told["groups"])) == {"working": [["/a", "x"]], "empty": [["/a", "y", 4, 3]]}
    (finding,) = told["findings"]
    assert (finding["key"], finding["node"]) == ("group-empty", "")
    assert "y on /a: 4 messages queued, 3 members" in finding["cause"]
