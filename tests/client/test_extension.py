"""The pipe of extensions."""

import logging

import pytest

from crewel.bayeux.message import Fields
from crewel.client.client_extension import Extension, Pipe


class Mark(Extension):
    """Writes its letter into every message."""

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def incoming(self, message: Fields) -> Fields:
        message["trace"] = message.get("trace", "") + self.letter
        return message

    outgoing = incoming


class Drop(Extension):
    def incoming(self, message: Fields) -> None:
        return None

    outgoing = incoming


class Break(Extension):
    def incoming(self, message: Fields) -> Fields:
        raise LookupError("broken")

    outgoing = incoming


class Renumber(Extension):
    def outgoing(self, message: Fields) -> Fields:
        return {**message, "id": "mine"}


def test_incoming_goes_first_to_last_and_outgoing_last_to_first() -> None:
    pipe = Pipe((Mark("a"), Extension(), Mark("b")))
    assert pipe.incoming({}) == {"trace": "ab"}
    assert pipe.outgoing({}) == {"trace": "ba"}


def test_a_dropped_message_goes_no_further() -> None:
    pipe = Pipe((Drop(), Mark("a")))
    assert pipe.incoming({}) is None
    assert pipe.outgoing({}) is None


def test_a_broken_extension_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert Pipe((Break(), Mark("a"))).incoming({}) == {"trace": "a"}
    assert "broken" in caplog.text


def test_the_id_is_not_an_extensions_to_change() -> None:
    sent = Pipe((Renumber(),)).outgoing({"id": "7"})
    assert sent == {"id": "7"}


def test_extensions_come_and_go() -> None:
    pipe, mark = Pipe(), Mark("a")
    pipe.add(mark)
    assert pipe.incoming({}) == {"trace": "a"}
    pipe.remove(mark)
    assert pipe.incoming({}) == {}
    with pytest.raises(ValueError, match="not in list"):
        pipe.remove(mark)
