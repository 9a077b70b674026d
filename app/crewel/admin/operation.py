"""What operators do to sessions, subjects and topics: each operation is one row of `OPERATIONS`.

Its REST route, its command of `crewel`, its command `__cmd:…` and its documentation are made from the row. The command line
reads the table too, and must not wait for the server to be imported: this module knows the broker by its types only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final

from crewel.admin.example import Example
from crewel.admin.request_fields import WITH_REASON, Field, flag_text, text_field
from crewel.security.grants import Role

if TYPE_CHECKING:
    from crewel.admin.call import Call


class About(Enum):
    """What a request is about, for operators whose roles hold for some channels."""

    SERVER = "the server as a whole"
    CHANNEL = "the channel that its path names"
    SESSION = "the session that its path names"
    SUBJECT = "the subject that its path names"
    MANY = "what its handler chooses, of what the operator may see or do"


class Level(StrEnum):
    """What an operation or a command is about."""

    NODE = "node"
    SUBJECT = "subject"
    SESSION = "session"
    TOPIC = "topic"

    @property
    def path(self) -> str:
        """The beginning of a `__cmd` about it."""
        return _COMMANDS[self]

    @property
    def about(self) -> About:
        """What its resources are about."""
        return _ABOUT[self]

    @property
    def resource(self) -> str:
        """Its path below `/admin/api`; `{name}` is a variable."""
        return _RESOURCES[self]


_ABOUT: Final = {
    Level.NODE: About.SERVER,
    Level.SUBJECT: About.SUBJECT,
    Level.SESSION: About.SESSION,
    Level.TOPIC: About.CHANNEL,
}
_COMMANDS: Final = {
    Level.NODE: "__cmd:?",
    Level.SUBJECT: "__cmd:client/joe/?",
    Level.SESSION: "__cmd:client/joe/1/?",
    Level.TOPIC: "__cmd:topic/a/b/?",
}
_RESOURCES: Final = {
    Level.NODE: "",
    Level.SUBJECT: "/subjects/{subject}",
    Level.SESSION: "/sessions/{subject}/{number}",
    Level.TOPIC: "/topics/{channel}",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on a session, a subject or a topic."""

    level: Level
    verb: str
    """The command `crewel sessions <verb>`, and the last segment of the route unless it has a `path` of its own."""
    meaning: str
    effect: Callable[[Call], Any]
    """Does it, with the fields of the request in `call.fields`. May return an awaitable."""
    printed: Callable[[Mapping[str, Any]], str]
    """The text for people, from the answer of the server."""
    example: Example
    key: str = ""
    """The field of the answer that has the result of the effect; empty if it has none."""
    result: str = ""
    """The meaning of that field."""
    command: str = ""
    """The property of `__cmd` that does the same, by its name in xmlBlaster; empty if there is none."""
    fields: tuple[Field, ...] = ()
    """Of the body, or of the query if the method is DELETE. The first is the value of `__cmd` if it is a flag."""
    method: str = "POST"
    path: str = ""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Further answers, by status."""
    role: Role = Role.DESTROY
    """What an operator needs for it."""
    is_beforehand: bool = False
    """Whether it also holds for what is not there yet."""

    @property
    def asked(self) -> tuple[Field, ...]:
        """Its fields, among them a reason, which the audit has for each operation."""
        return self.fields if any(each.name == "reason" for each in self.fields) else (*self.fields, WITH_REASON)

    @property
    def route(self) -> str:
        """Its path below `/admin/api`."""
        return self.path or f"{self.level.resource}/{self.verb}"


_ENDS: Final[Mapping[str, str]] = {"DEAD": "erased", "SOFTERASED": "erased; queued messages are still delivered"}


def _waiting(answer: Mapping[str, Any]) -> str:
    return f"{answer['waiting']} waiting"


def _taken_out(call: Call, what: str, work: Awaitable[int]) -> Awaitable[int]:
    return call.admin.taken_out(call.session, what, call.who, work)


OPERATIONS: Final = (
    Operation(
        Level.SESSION,
        "activate",
        "Activate a session that is on hold. It gets the held message at its old position.",
        lambda call: call.admin.dispatchers.activate(call.session),
        lambda answer: f"active, {_waiting(answer)}",
        Example({"reason": "database is back"}, {"active": True}),
        role=Role.OPERATE,
    ),
    Operation(
        Level.SESSION,
        "hold",
        "Put a session on hold: messages queue up until it is activated.",
        lambda call: call.admin.dispatchers.hold(
            call.session, call.who, code=call.fields.get("code", ""), reason=call.fields.get("reason", "")
        ),
        lambda answer: f"on hold, {_waiting(answer)}",
        Example({"reason": "database is down"}, {"active": False, "cause": "database is down, by admin"}),
        fields=(
            text_field("reason", "Reason, for other operators."),
            text_field("code", "Code, for other operators."),
        ),
        role=Role.OPERATE,
    ),
    Operation(
        Level.SESSION,
        "skip",
        "Turn the held message, or the first in the queue, into a dead letter. The session stays as it is.",
        lambda call: _taken_out(
            call, "skipped", call.admin.dispatchers.skip(call.session, call.fields.get("message", ""))
        ),
        lambda answer: f"{answer['letters']} became dead letters, {_waiting(answer)}",
        Example({"reason": "order was cancelled"}, {"letters": 1}),
        "letters",
        "how many became dead letters, 0 or 1",
        command="skipCallbackMessage",
        fields=(text_field("message", "Only the message with this id; nothing, if it is no longer in the queue."),),
        role=Role.OPERATE,
    ),
    Operation(
        Level.SESSION,
        "drain",
        "Turn the whole queue into dead letters. The session stays as it is.",
        lambda call: _taken_out(call, "drained", call.admin.dispatchers.drain(call.session)),
        lambda answer: f"{answer['letters']} became dead letters, {_waiting(answer)}",
        Example({"reason": "joe was replaced"}, {"letters": 1, "waiting": 0}),
        "letters",
        "how many became dead letters",
        command="drainCallbackQueue",
        role=Role.OPERATE,
    ),
    Operation(
        Level.SESSION,
        "clear",
        "Drop the queue without dead letters.",
        lambda call: _taken_out(call, "cleared", call.admin.dispatchers.clear(call.session)),
        lambda answer: f"{answer['cleared']} messages dropped",
        Example({"reason": "test data"}, {"cleared": 1, "waiting": 0}),
        "cleared",
        "how many messages were dropped",
        command="clearCallbackQueue",
    ),
    Operation(
        Level.SESSION,
        "retry",
        "End the pause after a client failure: send the queue now.",
        lambda call: call.admin.dispatchers.retry(call.session),
        lambda answer: "tried again" if answer["retried"] else "nothing waited for a retry",
        Example({}, {"retried": False}),
        "retried",
        "whether there was a pause",
        command="retryCallbackNow",
        role=Role.OPERATE,
    ),
    Operation(
        Level.SESSION,
        "ping",
        "Ping the client.",
        lambda call: call.admin.ping(call.session),
        lambda answer: f"{answer['pingMs']} ms",
        Example({}, {"name": "client/joe/1"}),
        "pingMs",
        "the round trip in milliseconds",
        command="pingClientCallbackServer",
        refusals={504: "The client did not reply in time (communication.noConnection)."},
        role=Role.OPERATE,
    ),
    Operation(
        Level.SESSION,
        "refresh",
        "Extend the lifetime of the session as if its client had just connected.",
        lambda call: call.admin.refresh(call.session),
        lambda answer: "refreshed",
        Example({}, {"name": "client/joe/1"}),
        command="refreshSession",
        role=Role.OPERATE,
    ),
    Operation(
        Level.SESSION,
        "kill",
        "End the session. The queue of a named session becomes dead letters. Its client, if it is connected, is asked not to"
        " reconnect.",
        lambda call: call.admin.end(call.session, call.who),
        lambda answer: "ended",
        Example({"reason": "joe was replaced"}, {"name": "client/joe/1", "killed": True}),
        "killed",
        "true",
    ),
    Operation(
        Level.SUBJECT,
        "clear",
        "Drop the queue of the subject without dead letters.",
        lambda call: call.admin.destinations.clear(call.subject),
        lambda answer: f"{answer['cleared']} messages dropped",
        Example({"reason": "test data"}, {"name": "client/joe", "cleared": 1}),
        "cleared",
        "how many messages were dropped",
        command="clearSubjectQueue",
        method="DELETE",
        path="/subjects/{subject}/messages",
    ),
    Operation(
        Level.SUBJECT,
        "kill",
        "End all sessions of the subject. Their queues become dead letters; messages to the subject wait for its next session.",
        lambda call: call.admin.kill(call.sessions, call.who),
        lambda answer: f"{answer['killed']} sessions ended",
        Example({"reason": "left the company"}, {"name": "client/joe", "killed": 1}),
        "killed",
        "how many sessions ended",
        command="killClient",
    ),
    Operation(
        Level.SUBJECT,
        "block",
        "Refuse logins of the subject until the server ends, also before its first one, and end all its sessions.",
        lambda call: call.admin.block(call.subject, call.sessions, call.who),
        lambda answer: f"blocked, {answer['killed']} sessions ended",
        Example({"reason": "left the company"}, {"name": "client/joe", "killed": 1}),
        "killed",
        "how many sessions ended",
        command="blockClientAndResetConnections",
        refusals={404: "No subject can have this name, or the operator's roles do not cover it."},
        is_beforehand=True,
    ),
    Operation(
        Level.SUBJECT,
        "unblock",
        "Accept logins of the subject again.",
        lambda call: call.admin.set_blocked(call.subject, is_blocked=False),
        lambda answer: "not blocked",
        Example({}, {"name": "client/joe"}),
        role=Role.OPERATE,
    ),
    Operation(
        Level.TOPIC,
        "erase",
        "Erase a topic with its history and settings. Its subscribers get a notice, and subscriptions to its name"
        " end. Queued messages are delivered.",
        lambda call: call.admin.erase_topic(call.name, force=call.fields.get("force", False)),
        lambda answer: _ENDS.get(answer["state"], "erased, and created again since"),
        Example({"reason": "test data"}, {"channel": "/kitchen/orders", "state": "SOFTERASED"}),
        command="eraseTopic",
        fields=(flag_text("force", "true: do not deliver queued messages."),),
        method="DELETE",
        path="/topics/{channel}",
    ),
    Operation(
        Level.TOPIC,
        "clear",
        "Clear a topic's history. Subscribers are not notified.",
        lambda call: call.admin.clear_history(call.name),
        lambda answer: f"{answer['cleared']} messages removed",
        Example({"reason": "test data"}, {"channel": "/kitchen/orders", "cleared": 1}),
        "cleared",
        "how many messages were removed",
        command="clearHistoryQueue",
        method="DELETE",
        path="/history/{channel}",
    ),
)
"""All of them, in the order in which the documentation and the help have them."""
