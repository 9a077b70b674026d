"""What a subscribe can ask for: each field, its default and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.errors import IllegalArgument
from crewel.qos.filters import Filter
from crewel.qos.subscribe import (
    MAX_CHOICES,
    MAX_POSITIONS,
    USUAL,
    Choice,
    Position,
    SubscribeQos,
    joined,
    read_choice,
    read_subscribe_qos,
)


def test_nothing_asked_for_is_as_usual() -> None:
    qos = read_subscribe_qos({})
    assert qos == SubscribeQos()
    assert qos.choice == USUAL
    assert (qos.history, qos.newest_first, qos.initial_update, qos.multi_subscribe) == (1, True, True, True)
    assert (qos.persistent, qos.since) == (False, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"history": {"numEntries": -1}}, SubscribeQos(history=-1)),
        ({"history": {"numEntries": 0, "newestFirst": False}}, SubscribeQos(history=0, newest_first=False)),
        ({"history": {}}, SubscribeQos()),
        ({"initialUpdate": False}, SubscribeQos(initial_update=False)),
        ({"multiSubscribe": False}, SubscribeQos(multi_subscribe=False)),
        ({"persistent": True}, SubscribeQos(persistent=True)),
        ({"local": False}, SubscribeQos(Choice(local=False))),
        ({"notify": False}, SubscribeQos(Choice(notify=False))),
        ({"updateOneway": True, "newestOnly": True}, SubscribeQos(Choice(update_oneway=True, newest_only=True))),
        ({"group": "cooks_1.2@x-y"}, SubscribeQos(Choice(group="cooks_1.2@x-y"))),
        ({"filter": "data.a"}, SubscribeQos(Choice(filter=Filter("data.a")))),
        ({"group": None, "filter": None, "since": None}, SubscribeQos()),
        ({"since": {}}, SubscribeQos(since={})),
        (
            {"since": {"/a": {"epoch": "e", "id": "12"}, "/b/": {"epoch": "", "id": "0"}}},
            SubscribeQos(since={"/a": Position("e", 12), "/b": Position("", 0)}),
        ),
    ],
)
def test_each_field_is_read(given: dict[str, Any], expected: SubscribeQos) -> None:
    assert read_subscribe_qos(given) == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (None, "subscribe"),
        ([], "subscribe"),
        ({"histroy": {}}, "histroy"),
        ({"history": 3}, "history"),
        ({"history": {"numEntries": -2}}, "history.numEntries"),
        ({"history": {"numEntries": True}}, "history.numEntries"),
        ({"history": {"newestFirst": 1}}, "history.newestFirst"),
        ({"history": {"entries": 1}}, "history.entries"),
        ({"initialUpdate": "yes"}, "initialUpdate"),
        ({"local": None}, "local"),
        ({"group": ""}, "group"),
        ({"group": "a b"}, "group"),
        ({"group": 5}, "group"),
        ({"filter": "data."}, "filter"),
        ({"filter": ""}, "filter"),
        ({"filter": 5}, "filter"),
        ({"filter": "a" * 1025}, "filter"),
        ({"since": []}, "since"),
        ({"since": {f"/{number}": {} for number in range(MAX_POSITIONS + 1)}}, "since"),
        ({"since": {"a": {"epoch": "e", "id": "1"}}}, "since.a"),
        ({"since": {"/a/*": {"epoch": "e", "id": "1"}}}, "since./a/*"),
        ({"since": {"/a": 5}}, "since./a"),
        ({"since": {"/a": {"epoch": "e"}}}, "since./a"),
        ({"since": {"/a": {"epoch": 1, "id": "1"}}}, "since./a.epoch"),
        ({"since": {"/a": {"epoch": "e", "id": 1}}}, "since./a.id"),
        ({"since": {"/a": {"epoch": "e", "id": "-1"}}}, "since./a.id"),
        ({"since": {"/a": {"epoch": "e", "id": "1", "x": 1}}}, "since./a.x"),
        ({"group": "a", "since": {"/a": {"epoch": "e", "id": "1"}}}, "since"),
        ({"group": "a", "filter": "data.a"}, "filter"),
        ({"group": "a", "newestOnly": True}, "newestOnly"),
        ({"group": "a", "updateOneway": True}, "updateOneway"),
    ],
)
def test_what_does_not_fit_is_named(given: object, field: str) -> None:
    with pytest.raises(IllegalArgument) as refused:
        read_subscribe_qos(given)
    assert refused.value.field == field


def test_a_group_may_say_what_is_usual() -> None:
    assert read_subscribe_qos({"group": "a", "newestOnly": False, "updateOneway": False}).choice == Choice(group="a")


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (USUAL, {}),
        (Choice(local=False, notify=False), {"local": False, "notify": False}),
        (Choice(update_oneway=True, newest_only=True), {"updateOneway": True, "newestOnly": True}),
        (Choice(group="cooks"), {"group": "cooks"}),
        (Choice(filter=Filter("data.a")), {"filter": "data.a"}),
    ],
)
def test_what_lasts_is_told_and_read_again(choice: Choice, told: dict[str, Any]) -> None:
    assert choice.as_json() == told
    assert read_choice(told) == choice


def test_several_subscriptions_want_what_any_of_them_wants() -> None:
    first, second = Choice(local=False), Choice(filter=Filter("data.a"))
    assert joined((), first) == (first,)
    assert joined((first,), second) == (first, second)
    assert joined((first, second), Choice(local=False)) == (first, second)
    assert joined((first,), USUAL) == ()
    assert joined((), USUAL) == ()
    assert joined((USUAL,), first) == ()


def test_there_is_an_end_to_them() -> None:
    choices = tuple(Choice(filter=Filter(f"data.a{number}")) for number in range(MAX_CHOICES))
    assert joined(choices[:-1], choices[-1]) == choices
    with pytest.raises(IllegalArgument) as refused:
        joined(choices, Choice(local=False))
    assert refused.value.field == "multiSubscribe"
