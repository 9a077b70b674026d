"""The table of commands, and how one is carried out: found in the table, given its value, and called with what it is about.

The remote call `/service/__cmd`, `POST /admin/api/commands` and `crewel cmd` are faces of the table; docs/how-to/operating.md
prints it. As in xmlBlaster, reading a property that is an operation does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.call import Call
from crewel.admin.command import Access, Command, Order, illegal, read_order
from crewel.admin.node_resource import NODE_COMMANDS
from crewel.admin.operation import Level
from crewel.admin.role_scopes import NotCovered, require, role_on_subject
from crewel.admin.scope_coverage import covers_channel, covers_session
from crewel.admin.session_resource import SESSION_COMMANDS
from crewel.admin.subject_resource import SUBJECT_COMMANDS
from crewel.admin.topic_resource import TOPIC_COMMANDS
from crewel.broker.admission.guard import role_of_session
from crewel.broker.session import Session
from crewel.errors import CrewelError, IllegalArgument, PayloadError, Refused, RemoteCallError
from crewel.qos.names import is_subject
from crewel.security.grants import Role, Scope
from crewel.topics import State

CHANNEL: Final = "/service/__cmd"

COMMANDS: Final = (*NODE_COMMANDS, *SUBJECT_COMMANDS, *SESSION_COMMANDS, *TOPIC_COMMANDS)
"""Every property, in the order in which the documentation has them."""

_TABLES: Final[Mapping[Level, Mapping[str, Command]]] = {
    level: {row.name: row for row in COMMANDS if row.level is level} for level in Level
}


async def run(admin: Administration, text: object, who: str, scope: Scope) -> dict[str, Any]:
    """Carry out one command for the operator of this name and these roles: `{"command": <absolute>, "result": <value>}`. Raises
    IllegalArgument, which names what is wrong; Refused if the roles do not allow it, or its kind NotCovered if they do not even
    cover what it is about. Raises StoreError too, and what an operation raises that did not succeed."""
    order = read_order(text, admin.node)
    row, absolute = row_of(order), order.absolute(admin.node)
    writes = row.write is not None and order.values is not None
    needed, role = row.needs(writes=writes), scope.highest
    try:
        is_covered = await _covers(admin, scope, needed, order)
        require(scope, needed, order.level.about, is_covered=is_covered)
    except Refused as error:
        admin.audit.refused(who, role, "command", error.code, command=absolute)
        raise
    acts, value = writes or row.access is Access.OPERATE, _value(row, order)
    is_beforehand = row.is_beforehand and acts and value is not False
    call = await _addressed(admin, order, who, scope, value, is_beforehand=is_beforehand)
    if not acts:
        return {"command": absolute, "result": await _waited(row.answer(call))}
    with admin.audit.action(who, role, "command", about=order.name, command=absolute) as action:
        result = await _waited((row.write if writes and row.write is not None else row.answer)(call))
        action.count = result if type(result) is int else None
    return {"command": absolute, "result": "OK" if writes else result}


async def _covers(admin: Administration, scope: Scope, needed: Role, order: Order) -> bool:
    """Whether the role that is needed holds for what the command is about. Raises NotCovered if the operator does not see that,
    IllegalArgument if it is not here, StoreError."""
    if scope.allows(needed) or order.level is Level.NODE:
        return scope.allows(needed)
    if order.level is Level.TOPIC:
        return covers_channel(scope, needed, order.name)
    if order.level is Level.SESSION:
        session = admin.find(order.name)
        if session is None:
            raise missing_order(order)
        is_seen, is_covered = (covers_session(scope, role, session) for role in (Role.VIEW, needed))
    else:
        subject = order.name.partition("/")[2]
        if not admin.sessions_of(subject):
            raise missing_order(order)  # another node may have one
        held = await role_on_subject(admin, scope, subject)
        is_seen, is_covered = held is not None, held is not None and held >= needed
    if not is_seen:
        raise NotCovered(needed, order.level.about)
    return is_covered


def missing_order(order: Order) -> IllegalArgument:
    """The error of a command about a session or a subject that is not there, or that the operator does not see."""
    if order.level is Level.SESSION:
        return illegal(f"is about the session {order.name}, which is not here; __cmd:?sessionList lists all")
    return illegal(
        f"is about {order.name}, which has no session and no messages here; __cmd:?clientList lists all subjects with sessions"
    )


async def _waited(result: Any) -> Any:
    return await result if isawaitable(result) else result


def row_of(order: Order) -> Command:
    """The row of the table for this command. Raises IllegalArgument if there is none."""
    table = _TABLES[order.level]
    row = table.get(order.property)
    if row is None:
        near = get_close_matches(order.property, table, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise illegal(f"asks for {order.property!r}, which no {order.level} has; {hint}known are {', '.join(table)}")
    return row


def _value(row: Command, order: Order) -> Any:
    takes, values = row.takes, order.values
    if takes is None:
        if values is not None:
            raise illegal(f"has a value, but {row.name} takes none")
        return None
    if values is None:
        if takes.default is None and row.write is None:
            raise illegal(f"lacks a value: {row.name}= takes {takes.expected}")
        return takes.default
    try:
        (text,) = values
        return takes.read(text)
    except ValueError:
        raise illegal(f"has {'&'.join(values)!r}, but {row.name} takes {takes.expected}") from None


async def _addressed(
    admin: Administration, order: Order, who: str, scope: Scope, value: Any, *, is_beforehand: bool
) -> Call:
    """The call with what it is about. Raises IllegalArgument if that is not there; of a subject only unless the command also
    holds beforehand."""
    match order.level:
        case Level.SESSION:
            session = admin.find(order.name)
            if session is None:
                raise missing_order(order)
            return Call(admin, who, scope, order.name, [session], value)
        case Level.SUBJECT:
            subject = order.name.partition("/")[2]
            if not (admin.has_subject(subject) or (is_beforehand and is_subject(subject))):
                raise missing_order(order)
            return Call(admin, who, scope, order.name, admin.sessions_of(subject), value)
        case Level.TOPIC:
            if await admin.topics.state(order.name) is State.DEAD:
                raise illegal(f"is about the channel {order.name}, which is not known; __cmd:?topicList lists all")
            return Call(admin, who, scope, order.name, [], value)
        case Level.NODE:
            return Call(admin, who, scope, value=value)


def failure_json(error: CrewelError) -> dict[str, str]:
    """How a failure is reported to an operator, the same on every face: `{"errorCode": …, "message": …}`."""
    usual = "user.illegalArgument" if isinstance(error, PayloadError) else "internal.unknown"
    return {
        "errorCode": getattr(error, "code", "") or usual,
        "message": getattr(error, "message", "") or str(error),
    }


def answer_remote_calls(admin: Administration) -> None:
    """Carry out what operators publish to `CHANNEL`, `{"command": "__cmd:…"}`. Publishes of others to it are refused."""

    async def call(session: Session, data: Any) -> dict[str, Any]:
        carry_out = partial(run, admin) if admin.everywhere is None else admin.everywhere.command
        try:
            text = data.get("command") if isinstance(data, dict) else None
            return await carry_out(text, session.name, Scope(role_of_session(session)))
        except CrewelError as error:
            raise RemoteCallError(failure_json(error)) from error

    # The guard refuses others before it asks a policy of the application.
    admin.broker.admission.guard.reserve(CHANNEL)
    admin.broker.runtime.services.calls[CHANNEL] = call
