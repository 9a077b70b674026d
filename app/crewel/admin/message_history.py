"""What happened to one message for each of its receivers, as the facts tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from crewel.delivery.records import EndReason, LogId
from crewel.storage.message_facts import Fact

ACKNOWLEDGED: Final = "acknowledged"
DEAD: Final = "dead letter"
WAITING: Final = "waiting"
_WORDS: Final = {EndReason.SETTLED.value: ACKNOWLEDGED, EndReason.DEAD.value: DEAD}
"""How an end is called, where the reason in the facts is another word."""


def outcome_word(reason: str) -> str:
    """How operators call the end of a message for one receiver; an empty reason: it has not ended."""
    return _WORDS.get(reason, reason) if reason else WAITING


@dataclass
class ReceiverOutcome:
    """What happened to the message for one receiver: a session or a shared queue."""

    receiver: str
    state: str
    """`waiting`, `acknowledged`, `dead letter`, or another reason for its end."""
    at_ms: int | None = None
    """When it came to this."""
    code: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The object of the answer."""
        return {"receiver": self.receiver, "state": self.state, "at": self.at_ms, "code": self.code, **self.more}


@dataclass
class MessageHistory:
    """What the facts say about one message."""

    channel: str = ""
    key: str = ""
    """Its idempotency key; empty if it has none, or that is no longer recorded."""
    published_ms: int | None = None
    """When it was stored; None if that is no longer recorded."""
    outcomes: dict[str, ReceiverOutcome] = field(default_factory=dict)
    redriven_as: list[str] = field(default_factory=list)
    """The ids of the messages that came of it when its dead letters were redriven."""
    redrive_of: str = ""
    """The dead letter that it was, if it comes from a redrive."""
    scheduled_as: str = ""
    """The id under which it was scheduled; empty if it was published at once."""
    schedule: dict[str, Any] | None = None
    """What happened to it as a scheduled message, as the answers have it; None if it is none."""


def message_history(log_id: LogId, facts: Iterable[Fact]) -> MessageHistory:
    """What happened to this message."""
    told = MessageHistory()
    add(told, log_id, facts)
    return told


def add(told: MessageHistory, log_id: LogId, facts: Iterable[Fact]) -> None:
    """Let the history tell these facts too."""
    for fact in facts:
        _READERS.get(fact.type, _nothing)(told, log_id, fact)


def _published(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    scheduled = fact.fields.get("scheduled", {})
    if log_id in scheduled.values():
        published = next(new for new, old in scheduled.items() if old == log_id)
        told.channel = fact.fields["channels"][int(published) - fact.fields["first"]] or told.channel
        told.schedule = (told.schedule or new_schedule()) | {"publishedAs": published}
        return
    told.channel, told.published_ms = fact.fields["channels"][log_id - fact.fields["first"]], fact.at_ms
    told.key = fact.fields.get("keys", {}).get(str(log_id), "")
    told.scheduled_as = str(scheduled.get(str(log_id), ""))


def new_schedule(due_ms: int | None = None) -> dict[str, Any]:
    """The answer about a scheduled message that waits; `due_ms` is None if it is not known."""
    return {"deliverAt": due_ms, "publishedAs": "", "cancelled": None}


def _scheduled(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    if fact.fields["id"] == log_id:
        told.channel, told.key = fact.fields["channel"], fact.fields.get("key", "")
        told.schedule = new_schedule(fact.fields["at"])


def _cancelled(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    if log_id in fact.fields["ids"]:
        told.channel = fact.fields["channels"][fact.fields["ids"].index(log_id)]
        gone = {"at": fact.at_ms, "who": fact.fields.get("who", "")}
        told.schedule = (told.schedule or new_schedule()) | {"cancelled": gone}


def _addressed(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    if fact.fields["id"] == log_id:
        told.channel, told.published_ms = fact.fields["channel"], fact.at_ms
        told.key = fact.fields.get("key", told.key)
        for name in (*fact.fields.get("sessions", ()), *fact.fields.get("queues", ())):
            told.outcomes[name] = ReceiverOutcome(name, WAITING, fact.at_ms)


def _leased(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    for lease in fact.fields["leases"]:
        if log_id in lease["ids"]:
            told.outcomes.pop(fact.fields["queue"], None)
            told.outcomes[lease["session"]] = ReceiverOutcome(lease["session"], WAITING, fact.at_ms)


def _returned(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    if log_id in fact.fields["ids"]:
        queue = fact.fields["queue"]
        told.outcomes[queue] = ReceiverOutcome(queue, WAITING, fact.at_ms)


def _ended(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    for each in fact.fields["ended"]:
        if log_id in each["ids"]:
            state = outcome_word(each["reason"])
            told.outcomes[each["session"]] = ReceiverOutcome(each["session"], state, fact.at_ms, each.get("code", ""))


def _discarded(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    fields = fact.fields  # servers of before did not say which messages and receivers
    rows = zip(fields["letters"], fields.get("messages", ()), fields.get("receivers", ()), strict=False)
    for letter, message, receiver in rows:
        if message == str(log_id):
            told.outcomes.setdefault(receiver, ReceiverOutcome(receiver, DEAD)).more["discarded"] = removal(
                letter, fact
            )


def removal(letter: str, fact: Fact) -> dict[str, Any]:
    """Who discarded this dead letter, and when: as the answers tell it."""
    return {"letter": letter, "at": fact.at_ms, "who": fact.fields.get("who", ""), "job": fact.fields.get("job", "")}


def _restored(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    for message, receiver in zip(fact.fields["messages"], fact.fields["receivers"], strict=True):
        if message == str(log_id) and receiver in told.outcomes:
            told.outcomes[receiver].more.pop("discarded", None)


def _redriven(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    fields = fact.fields
    if fields["id"] == log_id:
        told.redrive_of = fields["letter"]
        told.channel, told.published_ms = told.channel or fields.get("channel", ""), fact.at_ms
        if "session" in fields:
            told.outcomes[fields["session"]] = ReceiverOutcome(fields["session"], WAITING, fact.at_ms)
    elif fields["message"] == str(log_id):
        new = str(fields["id"])
        if new not in told.redriven_as:
            told.redriven_as.append(new)
        outcome = told.outcomes.get(fields.get("session", ""))
        if outcome is not None:
            outcome.more["redrivenAs"] = new


def _nothing(told: MessageHistory, log_id: LogId, fact: Fact) -> None:
    pass


_READERS: Final = {
    "published": _published,
    "scheduled": _scheduled,
    "cancelled": _cancelled,
    "addressed": _addressed,
    "leased": _leased,
    "returned": _returned,
    "ended": _ended,
    "redriven": _redriven,
    "discarded": _discarded,
    "restored": _restored,
}
"""What each type of fact tells."""
