"""What happened to a server in the last day, kept over restarts; and what several nodes say of one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crewel.admin import server_timeline
from crewel.admin.server_timeline import together
from crewel.storage.store_connection import CLOSED
from tests.admin.desk import SETS, Desk, Receiver
from tests.functional.wire import until
from tests.server_process import Server
from tests.store_process import StoreProcess

REFUSED = {"code": "x", "reason": "r", "count": 3, "name": "n", "address": "10.0.0.1"}


def event(what: str, node: str, at: int, until: int | None = None, **details: Any) -> dict[str, Any]:
    return {"what": what, "node": node, "at": at, "until": until, **details}


def test_what_several_nodes_say_of_one_outage_is_one_event() -> None:
    a = event("store outage", "a", 1000, 9000, why=["connection refused"])
    b = event("store outage", "b", 2000, 9500, why=["the store ended", "connection refused"])
    (one,) = together([a, b, a])
    assert one == {**a, "until": 9500, "nodes": ["a", "b"], "why": ["connection refused", "the store ended"]}
    later = event("store outage", "b", 100_000, 100_001, why=[])
    assert [each["at"] for each in together([a, b, later])] == [100_000, 1000]


def test_a_store_that_fails_again_and_again_is_one_event() -> None:
    outages = [event("store outage", "a", at, at + 900, why=["the store ended: No space left"]) for at in (1000, 3000)]
    (one,) = together(outages)
    assert (one["at"], one["until"], one["nodes"], one["times"]) == (1000, 3900, ["a"], 2)
    (lasting,) = together([*outages, event("store outage", "a", 5000, None, why=[])])
    assert (lasting["at"], lasting["until"]) == (1000, None)


def test_outages_for_several_reasons_are_several_events_at_all_nodes() -> None:
    whys = "the store was killed by signal 9", "no answer within 3 s", "the disk of /var is full"
    outages = [
        event("store outage", node, at + late, at + 2000, why=[why])
        for at, why in zip((1000, 4000, 7000), whys, strict=True)
        for node, late in (("a", 0), ("b", 300))
    ]
    found = together(outages)
    assert [(each["at"], each["why"], each["nodes"]) for each in found] == [
        (at, [why], ["a", "b"]) for at, why in zip((7000, 4000, 1000), reversed(whys), strict=True)
    ]
    again = event("store outage", "a", 10_000, 10_500, why=[whys[0]])
    assert len(together([outages[0], again])) == 2  # for the same reason, but much later


def test_the_reason_of_an_outage_takes_the_place_of_its_first_sign() -> None:
    outage = server_timeline._Outage("store outage", 0)
    for why in (CLOSED, "", CLOSED, "the store was killed by signal 9", "a", "b", "c", "c"):
        outage.note(why)
    assert outage.reasons == ["the store was killed by signal 9", "b", "c"]


def test_an_outage_that_lasts_for_one_node_lasts() -> None:
    a, b = event("store outage", "a", 1, 9, why=[]), event("store outage", "b", 2, None, why=[])
    (one,) = together([b, a])
    assert (one["at"], one["until"], one["nodes"]) == (1, None, ["a", "b"])


def test_starts_of_one_node_are_not_put_together_and_take_overs_never() -> None:
    starts = [event("started", "a", at, at, after="crash") for at in (1, 2)]
    takes = [event("took over", node, 5, 5, sessions=3, of=["c"]) for node in ("a", "b")]
    assert [each["what"] for each in together([*starts, *takes])] == ["took over", "took over", "started", "started"]


def test_refused_logins_of_one_cause_are_counted_together() -> None:
    first = event("logins refused", "a", 1000, 2000, code="x", reason="r", count=3, name="n", address="10.0.0.1")
    then = event("logins refused", "b", 62_000, 63_000, code="x", reason="s", count=4, name="m", address="10.0.0.2")
    other = event("logins refused", "a", 1000, 1000, code="y", reason="", count=1, name="", address="")
    found = together([first, then, other])
    assert [(each["code"], each["count"], each["nodes"]) for each in found] == [("x", 7, ["a", "b"]), ("y", 1, ["a"])]
    assert (found[0]["name"], found[0]["until"]) == ("m", 63_000)


def test_what_the_store_has_lost_is_counted_together() -> None:
    losses = [event("store lost data", node, at, at, count=at) for node, at in (("a", 1), ("b", 2))]
    (one,) = together(losses)
    assert (one["count"], one["nodes"]) == (3, ["a", "b"])


def test_starts_of_two_nodes_are_paired_though_each_started_twice() -> None:
    starts = [event("started", node, at, at) for at, node in enumerate("aabb", 1)]
    assert [(each["at"], each["nodes"]) for each in together(starts)] == [(2, ["a", "b"]), (1, ["a", "b"])]


def test_the_work_grows_with_the_number_of_events_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counted(one: Any, other: Any) -> bool:
        nonlocal compared
        compared += 1
        return real(one, other)

    real = server_timeline._is_same
    monkeypatch.setattr(server_timeline, "_is_same", counted)
    kinds = [("started", {}), ("store outage", {"why": []}), ("logins refused", REFUSED)]
    events = [event(what, "a", at, at, **more) for at in range(10**6, 10**9 + 1, 10**6) for what, more in kinds]
    assert len(together(events)) == len(events) == 3000
    assert compared <= len(events)


def timeline(desk: Desk, what: str = "") -> list[dict[str, Any]]:
    told = desk.get("/timeline")
    assert told["whole"] is True
    return [each for each in told["events"] if what in ("", each["what"])]


@pytest.mark.server
def test_starts_stops_and_refused_logins_are_kept_over_restarts(tmp_path: Path) -> None:
    arguments = ["--port=0", *(f"--set={text}" for text in SETS)]
    server = Server(arguments, tmp_path)
    assert Receiver(server).shake(name="joe/1", token="nonsense")["successful"] is False
    (refused,) = timeline(Desk(server), "logins refused")  # at once, though they are written once a minute
    assert (refused["code"], refused["count"], refused["node"]) == (
        "user.security.authentication.accessDenied",
        1,
        "heron",
    )
    assert (refused["name"], refused["address"]) == ("client/joe/1", "127.0.0.1")
    assert Receiver(server).shake(name="joe/1", token="nonsense")["successful"] is False
    assert [each["count"] for each in timeline(Desk(server), "logins refused")] == [2]
    arguments += [f"--set={text}" for text in server.store_sets]
    server.end_well()  # before the next minute: it is not lost
    server = Server(arguments, tmp_path)
    events = timeline(Desk(server))
    assert [each["what"] for each in events] == ["started", "stopped", "logins refused", "started"]
    assert [each.get("after") for each in events if each["what"] == "started"] == ["stop", ""]
    assert events[2]["count"] == 2
    server.kill()
    server = Server(arguments, tmp_path)
    assert [each["after"] for each in timeline(Desk(server), "started")] == ["crash", "stop", ""]
    server.end_well()


@pytest.mark.server
@pytest.mark.parametrize(("end", "after"), [("kill", "crash"), ("terminate", "stop")])
def test_an_outage_that_a_restart_interrupts_is_kept(tmp_path: Path, end: str, after: str) -> None:
    store = StoreProcess(tmp_path)
    arguments = ["--port=0", *(f"--set={text}" for text in (*SETS, f"storage.url={store.url}"))]
    server = Server(arguments, tmp_path)
    kept = tmp_path / "data" / "events-heron.json"
    until(lambda: len(timeline(Desk(server), "started")) == 1)
    assert not kept.exists()
    store.kill()
    arguments += [f"--set={text}" for text in server.store_sets]
    (lasting,) = until(lambda: desk_events(server, "store outage"))
    until(kept.exists)
    getattr(server, end)()
    store.start()
    server = Server(arguments, tmp_path)
    (outage,) = timeline(Desk(server), "store outage")
    started = timeline(Desk(server), "started")
    assert (outage["at"], outage["why"]) == (lasting["at"], lasting["why"])
    assert outage["until"] == pytest.approx(started[0]["at"], abs=2000)
    assert [each["after"] for each in started] == [after, ""]
    until(lambda: not kept.exists())
    server.end_well()
    server = Server(arguments, tmp_path)  # and once: it is in the store
    assert [(each["at"], each["until"]) for each in timeline(Desk(server), "store outage")] == [
        (outage["at"], outage["until"])
    ]
    server.end_well()
    store.close()


def desk_events(server: Server, what: str) -> list[dict[str, Any]]:
    return [each for each in Desk(server).get("/timeline")["events"] if each["what"] == what]
