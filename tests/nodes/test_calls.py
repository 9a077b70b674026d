"""Questions between nodes: what one cannot write or read is an error that has a name, and never silence."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.broker.topic_view import GroupState
from crewel.errors import NodeFailed, StoreUnavailable
from crewel.nodes.calls import Calls
from crewel.nodes.frames import LAST_STREAM, Frame, Kind
from crewel.nodes.node_requests import (
    ALIVE,
    LOG,
    OPERATOR,
    REQUESTS,
    TOPIC,
    Nothing,
    OfSubject,
    OfTopic,
    OperatorAnswer,
    OperatorQuestion,
    Request,
    SessionName,
    TopicAnswer,
)
from crewel.topics import State

QUESTION = OperatorQuestion("GET", "/sessions", "ann", 1, None, {}, {}, "")


class Link:
    """A link whose frames the other node takes at once."""

    version = 3

    def __init__(self, takes: Any) -> None:
        self.takes = takes
        self.streams = 0

    def send(self, kind: Kind, stream: int, payload: bytes) -> None:
        self.takes(kind, Frame(kind, stream, payload))


class Pair:
    """A node that asks, and one that answers."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        runtime: Any = SimpleNamespace(loop=asyncio.get_running_loop(), spawn=self.spawn)
        self.link: Any = Link(lambda kind, frame: self.answers.asked(self.back, frame))
        self.back: Any = Link(lambda kind, frame: self.asks.on_answer(self.link, frame))
        to_the_other: Any = SimpleNamespace(to=lambda _: self.link)
        to_none: Any = SimpleNamespace(to=lambda _: None)
        self.asks = Calls(runtime, to_the_other)
        self.answers = Calls(runtime, to_none)

    def spawn(self, coroutine: Any) -> None:
        self.tasks.add(asyncio.create_task(coroutine))

    def answering(self, request: Request[Any, Any], answer: Any) -> None:
        async def tell(_: Any) -> Any:
            return answer

        self.answers.serve(request, tell)


async def test_what_one_node_answers_the_other_one_reads() -> None:
    pair = Pair()
    told = TopicAnswer(State.ALIVE, {"readonly": True}, 1, 2, 3, [GroupState("/a/*", "g", 5, ["client/joe/1"])], False)
    pair.answering(TOPIC, told)
    assert await pair.asks.ask("b", TOPIC, OfTopic("/a/b")) == told


@pytest.mark.parametrize(
    ("request_", "question", "answer"),
    [
        (OPERATOR, QUESTION, OperatorAnswer(answer={"what": object()})),  # JSON cannot say it
        (ALIVE, OfSubject("joe"), SessionName(7)),  # type: ignore[arg-type]
        (ALIVE, OfSubject("joe"), Nothing()),
    ],
)
async def test_an_answer_that_cannot_be_written_is_a_failure_at_once(
    caplog: pytest.LogCaptureFixture, request_: Any, question: Any, answer: Any
) -> None:
    pair = Pair()
    pair.answering(request_, answer)
    with pytest.raises(NodeFailed, match=f"has failed to answer {request_.about}: its log says why"):
        await pair.asks.ask("b", request_, question)
    first, second = caplog.records
    assert (first.levelno, first.exc_info is not None) == (logging.ERROR, True)
    assert (second.levelno, request_.about in second.getMessage()) == (logging.ERROR, True)


async def test_a_node_of_an_earlier_version_is_no_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    with caplog.at_level(logging.INFO), pytest.raises(NodeFailed, match="does not know the request topic: its version"):
        await pair.asks.ask("b", TOPIC, OfTopic("/a/b"))
    (told,) = caplog.records
    assert (told.levelno, "the node does not know the request topic" in told.getMessage()) == (logging.INFO, True)


async def test_an_answer_that_cannot_be_read_is_a_failure_that_says_so() -> None:
    pair = Pair()
    for payload in (b"{}", b"7", b"{", b'{"name":[]}'):
        pair.link.takes = lambda kind, frame, payload=payload: pair.asks.on_answer(
            pair.link, Frame(Kind.TOLD, frame.stream, payload)
        )
        with pytest.raises(NodeFailed, match="answer of the node to alive cannot be read"):
            await pair.asks.ask("b", ALIVE, OfSubject("joe"))


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"7", b'{"about":"alive"}', b'{"about":"never heard of"}', b"{}"]
)
async def test_a_question_that_cannot_be_read_is_answered(payload: bytes) -> None:
    pair, told = Pair(), list[bytes]()
    pair.answering(ALIVE, SessionName("client/joe/1"))
    pair.back.takes = lambda kind, frame: told.append(frame.payload)
    pair.answers.asked(pair.back, Frame(Kind.ASK, 1, payload))
    await asyncio.gather(*pair.tasks)
    assert "failed" in orjson.loads(told[0])


async def test_a_question_that_cannot_be_written_is_an_error_of_the_node_that_asks() -> None:
    pair = Pair()
    with pytest.raises(ValueError, match="Expected `str`"):
        await pair.asks.ask("b", ALIVE, OfSubject(7))  # type: ignore[arg-type]


async def test_a_node_without_a_link_is_not_reached() -> None:
    pair = Pair()
    pair.link = None
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        await pair.asks.ask("b", LOG, Nothing())
    assert not isinstance(caught.value, NodeFailed)


async def test_numbers_of_questions_begin_again_behind_the_last_one_and_pass_over_those_that_are_open() -> None:
    pair, asked = Pair(), list[int]()
    pair.link.takes = lambda kind, frame: asked.append(frame.stream)  # it does not answer
    asking = []
    for last in (LAST_STREAM - 1, LAST_STREAM, LAST_STREAM):
        pair.link.streams = last
        asking.append(asyncio.create_task(pair.asks.ask("b", LOG, Nothing())))
        await asyncio.sleep(0)
    assert asked == [LAST_STREAM, 1, 2]
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)


@given(st.data())
def test_every_question_and_answer_is_read_as_it_was_written(data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_categories=("Cs",)))
    json = st.recursive(st.none() | st.booleans() | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner))
    for request in REQUESTS.values():
        for schema, type_ in ((request.question, request.asked), (request.answer, request.told)):
            value = data.draw(value_of(type_, text, json))
            assert schema.read(orjson.loads(schema.write(value))) == value


def value_of(type_: type, text: st.SearchStrategy[str], json: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any value of a schema; its fields by their types."""
    number = st.integers(0, 2**53)
    groups = st.lists(st.builds(GroupState, text, text, number, st.lists(text)))
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "str": text,
        "int": number,
        "bool": st.booleans(),
        "Any": json,
        "State": st.sampled_from(State),
        "list[str]": st.lists(text),
        "list[GroupState]": groups,
        "list[list[Any]]": st.lists(st.lists(text | number, max_size=6), max_size=2),
        "dict[str, str]": st.dictionaries(text, text),
        "int | str | list[str]": number | text | st.lists(text),
        "float | None": st.none() | st.floats(0, 1e12),
        "dict[str, Any] | None": st.none() | st.dictionaries(text, json),
    }
    fields = {
        each.name: kinds[str(each.type).removeprefix("Annotated[").partition(", Field")[0]]
        for each in dataclasses.fields(type_)
    }
    return st.builds(type_, **fields)
