"""The table of commands, and how one is carried out. The remote call `/service/__cmd`, `POST /admin/api/commands` and
`crewel cmd` are faces of it; docs/operating.md prints it.

As in xmlBlaster, reading a property that is an operation does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from inspect import isawaitable
from typing import Any, Final

from crewel.admin import node_facts, operations, session_facts
from crewel.admin.administration import Administration
from crewel.admin.calls import Access, Argument, Call, Command
from crewel.admin.grammar import Level, Order, read_order
from crewel.errors import IllegalArgument

__all__ = ["COMMANDS", "run"]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) <= 1_000_000):
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_N: Final = "a whole number from 1 to 1000000"
_PEEKED: Final = Argument(_N, _count, 1)
_REMOVED: Final = Argument(_N, _count)
_ON: Final = Argument("true or false", _flag)

_NODE, _SUBJECT, _SESSION, _TOPIC = Level
_R, _RW, _X = Access

COMMANDS: Final = (
    Command(_NODE, "version", _R, "Version of the server.", lambda c: node_facts.VERSION),
    Command(_NODE, "uptime", _R, "Seconds since it started.", node_facts.uptime),
    Command(_NODE, "serverTimestamp", _R, "Its clock.", node_facts.clock),
    Command(_NODE, "numNodes", _R, "How many nodes there are.", lambda c: 1),
    Command(_NODE, "nodeList", _R, "Their names.", lambda c: [c.admin.node]),
    Command(_NODE, "numClients", _R, "Subjects that have sessions.", lambda c: len(c.admin.subjects())),
    Command(_NODE, "clientList", _R, "Their names.", node_facts.clients),
    Command(_NODE, "clients", _R, "The same in one line.", lambda c: ",".join(c.admin.subjects())),
    Command(_NODE, "aliveCallbackClients", _R, "Sessions whose client is there.", node_facts.alive),
    Command(_NODE, "numSessions", _R, "Sessions, also those without a name.", lambda c: len(c.admin.broker.sessions)),
    Command(_NODE, "sessionList", _R, "Names of the sessions.", node_facts.sessions),
    Command(_NODE, "numTopics", _R, "Channels that are known.", lambda c: len(node_facts.topics(c))),
    Command(_NODE, "topicList", _R, "Their names.", node_facts.topics),
    Command(_NODE, "topics", _R, "The same in one line.", lambda c: ",".join(node_facts.topics(c))),
    Command(
        _NODE,
        "numSubscriptions",
        _R,
        "Subscriptions of all sessions.",
        node_facts.count_subscriptions,
    ),
    Command(
        _NODE,
        "subscriptionList",
        _R,
        "Session and channel of each subscription; not of sessions without a name.",
        node_facts.subscriptions,
    ),
    Command(_NODE, "numPublish", _R, "Messages that were published.", lambda c: c.admin.broker.metrics.publishes),
    Command(_NODE, "numUpdate", _R, "Messages that left for a receiver.", lambda c: c.admin.broker.metrics.deliveries),
    Command(_NODE, "numWaiting", _R, "Stored messages that wait, once a receiver.", node_facts.waiting),
    Command(_NODE, "numDeadLetters", _R, "Dead letters in the store.", node_facts.count_letters),
    Command(
        _NODE,
        "lastError",
        _R,
        "What is wrong with the store; empty if all is well.",
        node_facts.trouble,
    ),
    Command(_NODE, "usedMem", _R, "Bytes that the server uses.", node_facts.used_memory),
    Command(_NODE, "freeMem", _R, "Bytes of the machine that are free.", node_facts.free_memory),
    Command(_NODE, "totalMem", _R, "Bytes of the machine.", node_facts.total_memory),
    Command(_NODE, "gc", _X, "Collects garbage now: how many objects it was.", node_facts.collect),
    Command(_NODE, "dump", _R, "All sessions and channels, as one object.", node_facts.dump),
    Command(_SUBJECT, "numSessions", _R, "Its sessions.", lambda c: len(c.sessions)),
    Command(_SUBJECT, "sessionList", _R, "Their names.", session_facts.names),
    Command(
        _SUBJECT,
        "sessions",
        _R,
        "Their numbers in one line.",
        session_facts.numbers,
    ),
    Command(_SUBJECT, "uptime", _R, "Seconds since its first session.", session_facts.uptime),
    Command(_SUBJECT, "creationDate", _R, "When that was.", session_facts.login_date),
    Command(_SUBJECT, "killClient", _X, "Ends all its sessions: how many.", operations.kill),
    Command(_SESSION, "id", _R, "Its public name.", session_facts.identity),
    Command(_SESSION, "loginName", _R, "Its subject.", lambda c: session_facts.subject_of(c.session)),
    Command(_SESSION, "publicSessionId", _R, "Its number.", lambda c: int(session_facts.numbers(c))),
    Command(_SESSION, "qos", _R, "What its login asked for.", session_facts.qos),
    Command(
        _SESSION,
        "callbackConfigured",
        _R,
        "Whether a connect is held or a socket open.",
        session_facts.is_connected,
    ),
    Command(
        _SESSION,
        "connectionState",
        _R,
        "ALIVE, POLLING or DEAD.",
        session_facts.state,
    ),
    Command(_SESSION, "loginDate", _R, "Since when this server has it.", session_facts.login_date),
    Command(_SESSION, "uptime", _R, "Seconds since then.", session_facts.uptime),
    Command(
        _SESSION,
        "sessionTimeoutExpireDate",
        _R,
        "When it ends unless its client comes; empty while a connect is held.",
        session_facts.expire_date,
    ),
    Command(
        _SESSION,
        "pollingSinceDate",
        _R,
        "Since when nothing goes to its client, which is gone or has failed; empty while it is ALIVE.",
        session_facts.polling_since,
    ),
    Command(
        _SESSION,
        "stalled",
        _R,
        "Whether its client has failed and is left alone for a while.",
        session_facts.is_stalled,
    ),
    Command(
        _SESSION,
        "lastCallbackException",
        _R,
        "The last failure that its client has reported; empty if none.",
        session_facts.last_failure,
    ),
    Command(_SESSION, "clearLastCallbackException", _X, "Forgets it.", session_facts.forget_failure),
    Command(
        _SESSION,
        "numCallbackExceptions",
        _R,
        "How often in a row its client itself has failed; any OK begins anew.",
        session_facts.failures,
    ),
    Command(
        _SESSION,
        "pingRoundTripDelay",
        _R,
        "Milliseconds that its last ping took; -1 if there was none.",
        lambda c: c.admin.pings.get(c.session, -1),
    ),
    Command(
        _SESSION,
        "cbQueueNumMsgs",
        _R,
        "Messages that wait, were sent, or are open.",
        lambda c: c.admin.dispatching.waiting(c.session),
    ),
    Command(_SESSION, "cbQueueNumBytes", _R, "Their bytes.", lambda c: c.admin.dispatching.waiting_bytes(c.session)),
    Command(
        _SESSION, "cbQueueMaxMsgs", _R, "Most that may wait.", lambda c: session_facts.bounds(c.admin, c.session)[0]
    ),
    Command(
        _SESSION,
        "cbQueueMaxBytes",
        _R,
        "Most bytes that may wait; -1: no bound.",
        lambda c: session_facts.bounds(c.admin, c.session)[1] or -1,
    ),
    Command(
        _SESSION,
        "peekCallbackMessages",
        _R,
        "The oldest so many of them; they stay.",
        operations.peek,
        _PEEKED,
    ),
    Command(_SESSION, "clearCallbackQueue", _X, "Drops all that waits, without letters: how many.", operations.clear),
    Command(
        _SESSION,
        "removeFromCallbackQueue",
        _X,
        "Drops the oldest so many, without letters: how many.",
        operations.remove,
        _REMOVED,
    ),
    Command(
        _SESSION,
        "dispatcherActive",
        _RW,
        "Whether it is delivered to. false holds it back; true delivers again, the held message first.",
        session_facts.is_active,
        _ON,
        operations.set_active,
    ),
    Command(_SESSION, "holdback", _R, "Who holds it back, and why; null if nobody.", session_facts.holdback),
    Command(
        _SESSION,
        "skipCallbackMessage",
        _X,
        "The held message, or the oldest, becomes a dead letter: how many did.",
        operations.skip,
    ),
    Command(
        _SESSION,
        "drainCallbackQueue",
        _X,
        "All that waits becomes dead letters: how many did.",
        operations.drain,
    ),
    Command(
        _SESSION,
        "pingClientCallbackServer",
        _X,
        "Asks the client for a sign of life: milliseconds that it took.",
        operations.ping,
    ),
    Command(_SESSION, "refreshSession", _X, "It lives as if its client had just come.", operations.refresh),
    Command(
        _SESSION,
        "killSession",
        _X,
        "Ends it; what waits for a named session becomes dead letters.",
        operations.kill,
    ),
    Command(_SESSION, "numSubscriptions", _R, "Its subscriptions.", lambda c: len(c.session.subscriptions)),
    Command(_SESSION, "subscribedTopics", _R, "Their channels.", lambda c: sorted(c.session.subscriptions)),
    Command(
        _SESSION, "subscriptions", _R, "The same in one line.", lambda c: ",".join(sorted(c.session.subscriptions))
    ),
    Command(
        _TOPIC,
        "numSubscribers",
        _R,
        "Sessions that hear it, by its name or a pattern.",
        lambda c: len(node_facts.hearers(c)),
    ),
    Command(
        _TOPIC,
        "subscribers",
        _R,
        "Their names; not of sessions without a name.",
        lambda c: sorted(session.name for session in node_facts.hearers(c) if session.name),
    ),
)
"""Every property, in the order in which the documentation has them."""

_TABLES: Final[Mapping[Level, Mapping[str, Command]]] = {
    level: {row.name: row for row in COMMANDS if row.level is level} for level in Level
}


async def run(admin: Administration, text: object, who: str) -> dict[str, Any]:
    """Carry out one command for the operator of this name: `{"command": <absolute>, "result": <value>}`. Raises
    IllegalArgument, which names what is wrong, StoreError, and what an operation raises that did not succeed."""
    order = read_order(text, admin.node)
    row = _row(order)
    value = _value(row, order)
    call = _addressed(admin, order, who, value)
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


def _addressed(admin: Administration, order: Order, who: str, value: Any) -> Call:
    """The call with what it is about. Raises IllegalArgument if that is not there."""
    match order.level:
        case Level.SESSION:
            session = admin.find(order.name)
            if session is None:
                raise _illegal(f"is about the session {order.name}, which is not here; __cmd:?sessionList has them all")
            return Call(admin, who, order.name, [session], value)
        case Level.SUBJECT:
            sessions = admin.broker.logins.names.of_subject(order.name.partition("/")[2])
            if not sessions:
                raise _illegal(f"is about {order.name}, who has no session here; __cmd:?clientList has all who have")
            return Call(admin, who, order.name, sessions, value)
        case Level.TOPIC:
            if order.name not in admin.broker.channels:
                raise _illegal(f"is about the channel {order.name}, which is not known; __cmd:?topicList has them all")
            return Call(admin, who, order.name, [], value)
        case Level.NODE:
            return Call(admin, who, value=value)


def _illegal(message: str) -> IllegalArgument:
    return IllegalArgument("command", message)
