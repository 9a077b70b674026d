"""The options of `pub` and `sub`: what the client is asked for, and what is wrong usage."""

from pathlib import Path
from typing import Any

import pytest
import typer

from crewel.cli.qos_options import OF_PUBLISH, OF_SUBSCRIPTION, duration, publish_options, shown, subscribe_options
from crewel.client import PublishOptions, SubscribeOptions
from tests.cli.command import crewel

NOTHING: dict[str, Any] = dict.fromkeys(OF_PUBLISH)
NO_PAST: dict[str, Any] = dict.fromkeys(OF_SUBSCRIPTION)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1500", 1500),
        ("250ms", 250),
        ("90s", 90_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("-1", -1),
        ("forever", -1),
    ],
)
def test_a_time_has_a_unit_or_is_milliseconds(text: str, milliseconds: int) -> None:
    assert duration(text) == (milliseconds if milliseconds < 0 else milliseconds / 1000)


@pytest.mark.parametrize("text", ["", "-2", "1.5s", "soon", "5 s", "٣s"])
def test_a_text_that_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time such as"):
        duration(text)


def test_a_publish_asks_for_what_was_given_only() -> None:
    assert publish_options(NOTHING) == {}
    given = {
        "priority": "high",
        "to": ["joe", "client/ann/1"],
        "force_queuing": True,
        "life_time": "5m",
        "reply_to": "/ret/a/3000000/",
        "properties": ["a=1", "b=x=y", 'c={"d": 2}', "e="],
        "destroy_delay": "forever",
        "history_max": 0,
        "persistent": True,
        "force_update": False,
    }
    assert publish_options(NOTHING | given) == {
        "priority": "HIGH",
        "to": ["joe", "client/ann/1"],
        "force_queuing": True,
        "life_time": 300,
        "reply_to": "/ret/a/3000000",
        "properties": {"a": 1, "b": "x=y", "c": {"d": 2}, "e": ""},
        "destroy_delay": -1,
        "history_max": 0,
        "persistent": True,
        "force_update": False,
    }
    assert publish_options(NOTHING | {"priority": "0"}) == {"priority": 0}
    assert publish_options(NOTHING | {"deliver_after": "90s"}) == {"deliver_after": 90}
    for text in ("2026-12-24T20:00:00Z", "2026-12-24T21:00+01:00", "1798142400000"):
        assert publish_options(NOTHING | {"deliver_at": text}) == {"deliver_at": 1_798_142_400}


@pytest.mark.parametrize(
    ("option", "text", "fault"),
    [
        ("deliver_after", "forever", "is not a time such as"),
        ("deliver_after", "tomorrow", "is not a time such as"),
        ("deliver_at", "30m", "is not a date such as"),
        ("deliver_at", "tomorrow", "is not a date such as"),
    ],
)
def test_a_time_to_deliver_that_is_none_is_wrong_usage(option: str, text: str, fault: str) -> None:
    with pytest.raises(typer.BadParameter, match=fault):
        publish_options(NOTHING | {option: text})


def test_a_subscription_asks_for_what_was_given_only() -> None:
    assert subscribe_options(["/a"], NO_PAST) == {}
    assert subscribe_options(["/a"], NO_PAST | {"history": -1, "group": "cooks", "filter": "data.a"}) == {
        "history": -1,
        "newest_first": False,
        "group": "cooks",
        "filter": "data.a",
    }


@pytest.mark.parametrize(
    ("since", "position"),
    [
        ("now", {}),
        ("e:f:17", {"/a": {"epoch": "e:f", "id": "17"}}),
        ('{"/b": {"epoch": "e", "id": "1"}}', {"/b": {"epoch": "e", "id": "1"}}),
    ],
)
def test_a_position_is_read_as_it_is_shown(since: str, position: Any) -> None:
    assert subscribe_options(["/a"], NO_PAST | {"since": since}) == {"since": position}


def test_a_position_is_shown_as_it_is_read() -> None:
    assert shown({"/a": {"epoch": "e", "id": "17"}}, ["/a"]) == "e:17"
    assert shown({"/a": {"id": "1"}}, ["/a"]) == '{"/a":{"id":"1"}}'
    both = {"/a": {"epoch": "e", "id": "1"}, "/b": {"epoch": "e", "id": "2"}}
    one = {"/a": {"epoch": "e", "id": "17"}}  # the other channel keeps no history
    for reached in (both, one):
        since = shown(reached, ["/a", "/b"])
        assert subscribe_options(["/a", "/b"], NO_PAST | {"since": since}) == {"since": reached}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pub", "/a", "1", "--priority=10"), "10 is neither a number from 0 to 9 nor one of MIN, LOW"),
        (("pub", "/a", "1", "--priority=urgent"), "urgent is neither"),
        (("pub", "/a", "1", "--to=a b"), "a b is not the name of a session or a subject"),
        (("pub", "/a", "1", "--force-queuing"), "need --to"),
        (("pub", "/a", "1", "--distribute=one"), "need --to"),
        (("pub", "/a", "1", "--not-subscribable"), "need --to"),
        (("pub", "/a", "1", "--to=joe", "--distribute=two"), "two"),
        (("pub", "/a", "1", "--life-time=soon"), "soon is not a time such as"),
        (("pub", "/a", "1", "--destroy-delay=-5"), "-5 is not a time such as"),
        (("pub", "/a", "1", "--reply-to=/a/*"), "not the name of a channel"),
        (("pub", "/a", "1", "--property=x"), "--property takes NAME=VALUE"),
        (("pub", "/a", "1", "--history=-1"), "--history"),
        (("sub",), "CHANNEL is missing"),
        (("sub", "/a", "--history=-2"), "--history"),
        (("sub", "/a", "--newest-first"), "--newest-first needs --history"),
        (("sub", "/a", "--since=17"), "--since takes EPOCH:ID"),
        (("sub", "/a", "/b", "--since=e:17"), "for one channel"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = crewel(*arguments, directory=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err


def test_options_of_the_command_line_are_options_of_the_client() -> None:
    assert OF_PUBLISH.keys() <= PublishOptions.__annotations__.keys()
    assert OF_SUBSCRIPTION.keys() <= SubscribeOptions.__annotations__.keys()
