"""The overviews of several nodes as one."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

from crewel.admin.figures import Figures, as_json
from crewel.admin.joined_overview import is_readable, joined
from crewel.admin.past_troubles import PastTrouble
from crewel.bayeux.codec import encode, reread


def view(node: str, **fields: Any) -> dict[str, Any]:
    return {
        "node": node,
        "samples": {"at": [], "published": [], "p99": []},
        "sessions": {"count": 2, "states": {"ALIVE": 1, "POLLING": 1}, "queued": 7},
        "groups": {"working": [], "empty": []},
        "store": {"trouble": None, "letters": 3},
        "figures": as_json(Figures()),
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


def test_a_node_of_an_earlier_version_has_fewer_columns() -> None:
    own = {"at": [10_000.0], "published": [1.0], "p99": [7.0], "foreign": [5.0]}
    other = {"at": [8_000.0], "published": [10.0], "p99": [9.0]}
    told = joined(view("a", samples=own), [view("b", samples=other)])["samples"]
    assert (told["published"], told["foreign"]) == ([11.0], [5.0])


def test_findings_are_of_the_figures_of_all_nodes() -> None:
    there = as_json(Figures(facts_lost=2))
    told = joined(view("a", figures=as_json(Figures(facts_lost=1))), [view("b", figures=there)])
    assert [(each["key"], each["count"]) for each in told["findings"]] == [("pipeline-behind", 3)]
    assert is_readable(view("b"))
    assert not is_readable({"groups": {}})
    assert not is_readable(view("b", figures={"facts_lost": "many"}))


def test_what_has_ended_is_of_all_nodes_and_what_all_have_seen_is_told_once() -> None:
    here = [PastTrouble("held", "client/joe/1", "lunch", 1, 9, "a"), PastTrouble("full", "/jobs/* w", "full", 1, 8)]
    there = [PastTrouble("away", "client/ann/1", "away", 1, 7, "b"), PastTrouble("full", "/jobs/* w", "full", 1, 6)]
    own = view("a", figures=as_json(Figures(past=here)))
    told = joined(own, [view("b", figures=reread(encode(as_json(Figures(past=there)))))])["over"]
    assert [(each["key"], each["until"], each["nodes"]) for each in told] == [
        ("held", 9, ["a"]),
        ("away", 7, ["b"]),
        ("full", 6, []),
    ]
    here, there = ([PastTrouble("letters", "client/joe/1", "user.x", 1, *each)] for each in ((9, "", 5), (8, "", 2)))
    told = joined(view("a", figures=as_json(Figures(past=here))), [view("b", figures=as_json(Figures(past=there)))])[
        "over"
    ]
    assert [each["count"] for each in told] == [5]  # the other node has not seen all of them


def test_the_store_is_as_the_node_has_it_that_can_ask_it() -> None:
    lost = {"trouble": "no answer", "letters": 0}
    assert joined(view("a", store=lost), [view("b")])["store"] == {"trouble": None, "letters": 3}
    assert joined(view("a", store=lost), [view("b", store=lost)])["store"] == lost


def test_group_is_without_members_only_if_it_is_at_all_nodes() -> None:
    here = view("a", groups={"working": [], "empty": [["/a", "x", 5, 0], ["/a", "y", 3, 1]]})
    there = view("b", groups={"working": [["/a", "x"]], "empty": [["/a", "y", 4, 2, 9000, "client/z/1: away"]]})
    told = joined(here, [there])
    empty = [["/a", "y", 4, 3, 9000, "client/z/1: away"]]  # as of the node where the last member stopped
    assert reread(encode(told["groups"])) == {"working": [["/a", "x"]], "empty": empty}
    (finding,) = told["findings"]
    assert (finding["key"], finding["nodes"], finding["since"]) == ("group-empty", [], 9000)
    assert "y on /a" in finding["title"]
    assert "4 messages queued, 3 members" in finding["cause"]
