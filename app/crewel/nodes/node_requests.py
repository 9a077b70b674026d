"""What nodes ask each other, and what they answer: each request has a name and two schemas, and nothing else is sent.

Both sides write and read by the schema, so that what one of them cannot write or read is known there as an error, and by name.
A field with a default is left out while it has that value; a field that is not known is ignored: nodes of other versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import Field, TypeAdapter

from crewel.broker.topic_view import GroupState
from crewel.topics import State

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is nothing to say."""


@dataclass(frozen=True, slots=True)
class OperatorQuestion:
    """A request of an operator that another node is to answer."""

    method: str
    route: str
    """The path in the table of routes, with its variables."""
    who: str
    role: int | str | list[str]
    """A number, unless it is of some channels."""
    expires: float | None
    """When what the operator has shown expires, in seconds since 1970; None: never."""
    path: dict[str, str]
    query: dict[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class OperatorAnswer:
    """What the resource answers, or why it refuses."""

    answer: Any = None
    error: dict[str, Any] | None = None
    """The body of the refusal."""
    status: int = 0
    """Its HTTP status."""


@dataclass(frozen=True, slots=True)
class OfTopic:
    """About the topic of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What one node has of a topic: `TopicShare`."""

    state: State
    settings: dict[str, Any] | None
    """Those that are not as usual; None if the node does not know the topic."""
    queued: int
    subscribers: int
    receivers: int
    groups: list[GroupState]
    lets_go: Annotated[bool, Field(alias="letsGo")]


@dataclass(frozen=True, slots=True)
class OfSubject:
    """About the sessions of this subject."""

    subject: str


@dataclass(frozen=True, slots=True)
class SessionName:
    """The name of a session; empty: there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class ClearSessions:
    """End the sessions of the subject. `granted`: those too that are alive."""

    subject: str
    granted: bool


@dataclass(frozen=True, slots=True)
class BlockSubject:
    """Refuse the logins of the subject, or accept them again."""

    subject: str
    blocked: bool


@dataclass(frozen=True, slots=True)
class Subjects:
    """These subjects."""

    subjects: list[str]


@dataclass(frozen=True, slots=True)
class OfNode:
    """About the node that has, or had, this token."""

    token: str


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node, and where it accepts links; both empty: it is not known."""

    token: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Present:
    """The presence of all sessions of a node, up to a version of its announcements."""

    version: int
    entries: list[list[Any]]
    """The sessions that are present, as frames of the kind `PRESENCE` list them."""


@dataclass(frozen=True, slots=True)
class Exposition:
    """What a process counts, as Prometheus reads it."""

    text: str


class Schema(Generic[Answer]):
    """How values of one type are written and read."""

    def __init__(self, type_: type[Answer]) -> None:
        self._adapter = TypeAdapter(type_)

    def write(self, value: Answer) -> bytes:
        """The value as JSON. Raises ValueError for one that the type does not allow, or that JSON cannot say."""
        return self._adapter.dump_json(value, by_alias=True, exclude_defaults=True, warnings="error")

    def read(self, fields: Any) -> Answer:
        """The value of which this is the JSON. Raises ValueError if it is none."""
        return self._adapter.validate_python(fields)


class Request(Generic[Question, Answer]):
    """One request: what it is about, what is asked, and what is answered."""

    def __init__(self, about: str, question: type[Question], answer: type[Answer]) -> None:
        self.about, self.asked, self.told = about, question, answer
        self.question = Schema(question)
        self.answer = Schema(answer)
        REQUESTS[about] = self


REQUESTS: Final[dict[str, Request[Any, Any]]] = {}
"""All, by what they are about."""

OPERATOR: Final = Request("operator", OperatorQuestion, OperatorAnswer)
"""Answer an operator."""
LOG: Final = Request("log", Nothing, Nothing)
"""Read what is in the log now, and then answer."""
TOPIC: Final = Request("topic", OfTopic, TopicAnswer)
"""What do you have of this topic?"""
ALIVE: Final = Request("alive", OfSubject, SessionName)
"""Which of the subject's sessions at your side is alive?"""
CLEAR: Final = Request("clear", ClearSessions, Nothing)
BLOCK: Final = Request("block", BlockSubject, Nothing)
BLOCKED: Final = Request("blocked", Nothing, Subjects)
"""Which subjects do you block?"""
HEIR: Final = Request("heir", OfNode, NodeAddress)
"""Which node has the sessions that this one had?"""
PRESENT: Final = Request("presence", Nothing, Present)
"""Which of your sessions are present on which channels?"""
FIGURES: Final = Request("figures", Nothing, Exposition)
"""What do you count?"""
