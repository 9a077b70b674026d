"""What one command is: its form, and the row of the table that it is found in.

The form is xmlBlaster's: `__cmd:[/node/heron/]<path>/?<property>[=<value>[&<value>…]]`, where the path is empty or `node` (the
server itself), `client/joe` (a subject), `client/joe/1` or `client/joe/session/1` (a session), or `topic/a/b` (the channel
`/a/b`). It is read without knowing which commands there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import isawaitable
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from crewel.admin.call import Call
from crewel.admin.operation import OPERATIONS, Level, Operation
from crewel.bayeux.channel import parse as parse_channel
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.errors import IllegalArgument, Refused
from crewel.qos.names import parse_name
from crewel.security.grants import Role

PREFIX: Final = "__cmd:"
_MAX_LENGTH: Final = 4096
_ORDER: Final = re.compile(r"__cmd:(?P<path>[^?]*)\?(?P<property>[^=]*)(?:=(?P<values>.*))?", re.DOTALL)
_NODE: Final = re.compile(r"__cmd:/?node/(?P<node>[^/?]+)/?(?P<rest>[^?]*\?.*)", re.DOTALL)
_KNOWN_PATHS: Final = "nothing or `node`, client/<subject>, client/<subject>/<number>, topic/<channel>"


@dataclass(frozen=True, slots=True)
class Order:
    """One command as it was given."""

    level: Level
    name: str
    """`client/joe`, `client/joe/1`, or the channel's name; empty for the node."""
    property: str
    values: tuple[str, ...] | None
    """What stands after `=`, split at `&`; None if there is no `=`."""

    def absolute(self, node: str) -> str:
        """The command with its node, as it is answered and noted."""
        path = f"topic{self.name}" if self.level is Level.TOPIC else self.name
        values = "" if self.values is None else "=" + "&".join(self.values)
        return f"{PREFIX}/node/{node}/{path + '/' if path else ''}?{self.property}{values}"


class Access(StrEnum):
    """What may be done with a property."""

    READ = "r"
    WRITE = "rw"
    OPERATE = "x"


class Argument(NamedTuple):
    """The value that a property takes: what it is, how it is read (ValueError), and what counts if it is left out."""

    expected: str
    read: Callable[[str], Any]
    default: Any = None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) <= 1_000_000):
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def union(lists: list[list[str]]) -> list[str]:
    """The names of all nodes, each once."""
    return sorted({*chain.from_iterable(lists)})


COUNT: Final = Argument("a whole number from 1 to 1000000", _count)
FLAG: Final = Argument("true or false", _flag)


class Command(NamedTuple):
    """One property."""

    level: Level
    access: Access
    name: str
    meaning: str
    answer: Callable[[Call], Any]
    takes: Argument | None = None
    write: Callable[[Call], Any] | None = None
    role: Role = Role.DESTROY
    """What an operator needs to carry it out, if it is an operation."""
    join: Callable[[list[Any]], Any] | None = None
    """Makes one result of those of several nodes; None: that of any node is the whole answer."""
    asks: str = ""
    """The property that the nodes are asked for instead, if this one cannot be joined."""
    is_beforehand: bool = False
    """Whether it can be done, or written as true, for a subject that is not there yet."""

    def needs(self, *, writes: bool) -> Role:
        """The role that an operator needs to read the property, or to write it."""
        if self.access is Access.OPERATE:
            return self.role
        return Role.OPERATE if writes else Role.VIEW

    def as_json(self) -> dict[str, Any]:
        """The row as REST shows it: `role` is needed to read or run it, `writeRole` to write it (None: cannot be)."""
        return {
            "level": self.level.value,
            "path": self.level.path,
            "name": self.name,
            "access": self.access.value,
            "meaning": self.meaning,
            "takes": None if self.takes is None else self.takes.expected,
            "needsValue": self.takes is not None and self.takes.default is None and self.write is None,
            "role": self.needs(writes=False).word,
            "writeRole": None if self.write is None else self.needs(writes=True).word,
        }


def of_list(row: Command, name: str, meaning: str, made: Callable[[list[str]], Any]) -> Command:
    """The property of this name, which is made of the names that this row lists."""

    async def answer(call: Call) -> Any:
        names = row.answer(call)
        return made(await names if isawaitable(names) else names)

    return row._replace(name=name, meaning=meaning, answer=answer, join=lambda lists: made(union(lists)), asks=row.name)


def operation_commands(level: Level) -> tuple[Command, ...]:
    """The commands of the operations of this level. A command that takes a value takes a flag, the operation's first field;
    other fields are only for requests."""
    return tuple(_of_operation(each) for each in OPERATIONS if each.level is level and each.command)


def _of_operation(operation: Operation) -> Command:
    has_flag = bool(operation.fields) and operation.fields[0].schema["type"] == "boolean"

    def answer(call: Call) -> Any:
        given = {operation.fields[0].name: call.value} if has_flag else {}
        return operation.effect(replace(call, fields=given))

    returned = f" Returns {operation.result}." if operation.result else ""
    takes = FLAG._replace(default=False) if has_flag else None
    join = sum if operation.level is Level.SUBJECT and operation.key else None
    meaning = operation.meaning + returned
    return Command(
        operation.level,
        Access.OPERATE,
        operation.command,
        meaning,
        answer,
        takes,
        role=operation.role,
        join=join,
        is_beforehand=operation.is_beforehand,
    )


def without_node(text: object) -> tuple[str, object]:
    """The node that a command names, empty if it names none, and the command without it."""
    if isinstance(text, str) and (found := _NODE.match(text)) is not None:
        return found["node"], PREFIX + found["rest"]
    return "", text


def read_order(text: object, node: str) -> Order:
    """The command that this text says, for the node of this name. Raises IllegalArgument, which names what is wrong."""
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_LENGTH:
        raise illegal(f"must be a text of 1 to {_MAX_LENGTH} characters that begins with {PREFIX}")
    if not text.startswith(PREFIX):
        raise illegal(f"must begin with {PREFIX}, as in __cmd:client/joe/1/?dispatcherActive")
    found = _ORDER.fullmatch(text)
    if found is None or not found["property"]:
        raise illegal("names no property: it follows a question mark, as in __cmd:client/joe/1/?dispatcherActive")
    level, name = _target(found["path"], node)
    values = None if found["values"] is None else tuple(unquote(each) for each in found["values"].split("&"))
    return Order(level, name, found["property"], values)


def _target(path: str, node: str) -> tuple[Level, str]:
    segments = path.strip("/").split("/")
    if segments[0] == "node":
        if len(segments) > 1 and segments[1] != node:
            raise illegal(f"is for the node {segments[1]!r}, and this is the node {node!r}")
        segments = segments[2:] or [""]
    head, *rest = segments
    if not head and not rest:
        return Level.NODE, ""
    if head == "client":
        return _client("/".join(segments))
    if head == "topic":
        return _topic("/" + "/".join(rest))
    raise illegal(f"has the unknown path {path!r}; known are {_KNOWN_PATHS}")


def _client(path: str) -> tuple[Level, str]:
    name = parse_name(path)
    if name is None or (not name.number and path.count("/") > 1) or path.count("/") == 0:
        raise illegal(f"has {path!r}, which is neither client/<subject> nor client/<subject>/<number>")
    return (Level.SESSION if name.number else Level.SUBJECT), name.relative


def _topic(name: str) -> tuple[Level, str]:
    channel = parse_channel(name)
    if channel is None:
        raise illegal(f"has topic{name}, and {name!r} is not the name of a channel; topic/a/b is the channel /a/b")
    return Level.TOPIC, channel.name


def demand(role: Role | None, needed: Role) -> None:
    """Raise Refused unless this role includes the one that is needed."""
    if role is None or role < needed:
        has = "no role" if role is None else f"the role {role.word}"
        text = f"this needs the role {needed.word}, and the operator has {has}"
        raise Refused(f"403::{NOT_AUTHORIZED}", NOT_AUTHORIZED, text)


def illegal(message: str) -> IllegalArgument:
    """The error of a command that cannot be carried out as it is written."""
    return IllegalArgument("command", message)
