"""One topic as the server remembers it, what operators see of it, and the rules for topics as the settings have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from crewel.bayeux.channel import parse
from crewel.broker.addressing.consumer_groups import GroupState
from crewel.delivery.records import LogId
from crewel.errors import SettingsError
from crewel.qos.names import group_queue
from crewel.settings import Settings
from crewel.settings.topic_rules import fields_set, rule_name
from crewel.topics import USUAL, Rules, State, TopicSettings


class Topic:
    """A channel that has been published to, or that the store knows. Only `TopicTable` and `Endings` change it."""

    __slots__ = (
        "asked",
        "changed_at",
        "claims",
        "epoch",
        "history_count",
        "is_erased",
        "is_fresh",
        "is_marked",
        "is_plain",
        "is_stored",
        "name",
        "newest",
        "settings",
        "unreferenced_at",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        """The channel's."""
        self.settings: TopicSettings = USUAL
        self.asked = b""
        """What the store has to know of the settings, a JSON object; empty: nothing."""
        self.changed_at = LogId(0)
        """Where the log has the last change of it that this server has applied; 0: it has none."""
        self.claims = 0
        """What speaks for it: publishes, and whatever else has brought it about. Those that the store refused do not."""
        self.is_stored = False
        """Whether the store knows that, or was asked to."""
        self.epoch = ""
        """Names this life of the history, as far as this server knows."""
        self.newest = LogId(0)
        """The newest message that went into the history; 0 if none did."""
        self.history_count = 0
        """How many messages the history holds."""
        self.is_plain = True
        """Whether a publish that asks for nothing has nothing to look up here. Groups are not in it: each that begins or ends
        would change it in very many topics."""
        self.is_fresh = True
        """Whether it was published to since it was last looked at."""
        self.is_erased = False
        """Whether it has ended, and is at most remembered for what still waits in queues."""
        self.is_marked = False
        """Whether the store knows that it was erased."""
        self.unreferenced_at: float | None = None
        """Loop time (s) since which nothing refers to it; None while something does, or it is not known yet."""

    def emptied(self) -> None:
        """The history has gone."""
        self.history_count, self.newest, self.epoch = 0, LogId(0), ""


@dataclass(frozen=True, slots=True)
class TopicView:
    """What there is to say of a topic at one moment."""

    name: str
    state: State
    settings: TopicSettings
    epoch: str
    """Of the history; empty if it has none."""
    newest: LogId
    """The newest message of the history; 0 if there is none."""
    history: int
    """Messages in the history."""
    queued: int
    """Messages that wait in queues, counted once for each."""
    subscribers: int
    """Sessions that are subscribed to its very name."""
    receivers: int
    """Sessions that are subscribed to it, by its name or by a pattern."""
    groups: list[GroupState]
    """The groups of consumers that receive it."""
    dies_in_ms: int | None = None
    """How long it will live if nothing happens; None: without limit, or something refers to it."""
    unreached: int | None = None
    """Other nodes that have not said what they have of it; None: there are none to ask."""
    failed: int = 0
    """Those of them that failed, and were not silent."""


_CALLED: Final = {"history.max_entries": "history_max"}
"""Field of a rule -> field of PublishQos, where they differ."""


_KEPT: Final = "groups.keep"


def kept_groups(settings: Settings) -> list[str]:
    """The queues of the groups that keep their messages while they have no member."""
    rules = ((parse(pattern), rule) for pattern, rule in settings.topics.items())
    return [group_queue(channel.name, name) for channel, rule in rules if channel for name in rule.groups.keep]


def read_rules(settings: Settings) -> Rules:
    """The rules. Raises SettingsError for one whose pattern is none."""
    rules: dict[str, dict[str, Any]] = {}
    for pattern, rule in settings.topics.items():
        channel = parse(pattern)
        if channel is None or channel.is_meta:
            name = rule_name(pattern, "...")
            raise SettingsError(f"{name}: {pattern!r} is not a channel or pattern, such as /chat/** or /news/sport")
        fields = {_CALLED.get(name, name): value for name, value in fields_set(rule) if name != _KEPT}
        if rule.groups.keep and not (channel.is_broadcast and not channel.is_reply):
            raise SettingsError(f"{rule_name(pattern, _KEPT)}: messages on this channel cannot be shared in a group")
        rules.setdefault(channel.name, {}).update(fields)
    return Rules(rules)
