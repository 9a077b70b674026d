"""How a command is carried out: found in the table, given its value, and called with what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from inspect import isawaitable
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.calls import Access, Call, Command
from crewel.admin.commands import COMMANDS
from crewel.admin.grammar import Level, Order, read_order
from crewel.errors import IllegalArgument
from crewel.topics.lifecycle import State

_TABLES: Final[Mapping[Level, Mapping[str, Command]]] = {
    level: {row.name: row for row in COMMANDS if row.level is level} for level in Level
}


async def run(admin: Administration, text: object, who: str) -> dict[str, Any]:
    """Carry out one command for the operator of this name: `{"command": <absolute>, "result": <value>}`. Raises
    IllegalArgument, which names what is wrong, StoreError, and what an operation raises that did not succeed."""
    order = read_order(text, admin.node)
    row = _row(order)
    value = _value(row, order)
    call = await _addressed(admin, order, who, value)
    answer = row.write if row.write is not None and order.values is not None else row.answer
    if answer is not row.answer or row.access is Access.OPERATE:
        admin.note(who, "command", command=order.absolute(admin.node))
    result = answer(call)
    if isawaitable(result):
        result = await result
    return {"command": order.absolute(admin.node), "result": "OK" if answer is row.write else result}


def _row(order: Order) -> Command:
    table = _TABLES[order.level]
    row = table.get(order.property)
    if row is None:
        near = get_close_matches(order.property, table, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise _illegal(f"asks for {order.property!r}, which no {order.level} has; {hint}known are {', '.join(table)}")
    return row


def _value(row: Command, order: Order) -> Any:
    takes, values = row.takes, order.values
    if takes is None:
        if values is not None:
            raise _illegal(f"brings a value, and {row.name} takes none")
        return None
    if values is None:
        if takes.default is None and row.write is None:
            raise _illegal(f"lacks a value: {row.name}= takes {takes.expected}")
        return takes.default
    try:
        (text,) = values
        return takes.read(text)
    except ValueError:
        raise _illegal(f"brings {'&'.join(values)!r}, and {row.name} takes {takes.expected}") from None


async def _addressed(admin: Administration, order: Order, who: str, value: Any) -> Call:
    """The call with what it is about. Raises IllegalArgument if that is not there."""
    match order.level:
        case Level.SESSION:
            session = admin.find(order.name)
            if session is None:
                raise _illegal(f"is about the session {order.name}, which is not here; __cmd:?sessionList has them all")
            return Call(admin, who, order.name, [session], value)
        case Level.SUBJECT:
            subject = order.name.partition("/")[2]
            if not admin.has_subject(subject):
                raise _illegal(
                    f"is about {order.name}, who has no session here, and for whom nothing waits; __cmd:?clientList has all"
                    " who have"
                )
            return Call(admin, who, order.name, list(admin.broker.logins.names.of_subject(subject)), value)
        case Level.TOPIC:
            if await admin.broker.topics.state(order.name) is State.DEAD:
                raise _illegal(f"is about the channel {order.name}, which is not known; __cmd:?topicList has them all")
            return Call(admin, who, order.name, [], value)
        case Level.NODE:
            return Call(admin, who, value=value)


def _illegal(message: str) -> IllegalArgument:
    return IllegalArgument("command", message)
