"""The names of all keys of the store; `layout` says what lies under each.

All names begin with `<storage.prefix>{crewel}:`. The braces are a hash tag: on Redis Cluster all keys lie in one slot, so
that one script may change several.
"""

from __future__ import annotations

FORMAT = 2
"""The version of this layout, which the store keeps under `format`. A server refuses a newer one. It takes an older one as it
is, and from then on it is of this version: 1 says less of what waits."""

_TAG = "{crewel}:"


class Keys:
    """The names of all keys under one `storage.prefix`."""

    __slots__ = (
        "alerts",
        "base",
        "dead",
        "dropped",
        "epoch",
        "events",
        "expiry",
        "facts",
        "format",
        "last",
        "ledger",
        "letter_bytes",
        "letter_texts",
        "letter_uses",
        "log",
        "names",
        "nodes",
        "positions",
        "queues",
        "returned",
        "topics",
    )

    def __init__(self, prefix: str) -> None:
        self.base = prefix + _TAG
        """What all names begin with; scripts that find further keys by themselves build them from it."""
        self.format = self.base + "format"
        self.log = self.base + "log"
        self.last = self.base + "last"
        self.names = self.base + "names"
        self.epoch = self.base + "epoch"
        self.nodes = self.base + "nodes"
        self.dead = self.base + "dead"
        self.dropped = self.base + "dead:dropped"
        self.returned = self.base + "dead:returned"
        self.letter_texts = self.base + "dead:texts"
        self.letter_uses = self.base + "dead:uses"
        self.letter_bytes = self.base + "dead:bytes"
        self.facts = self.base + "facts"
        self.events = self.base + "events"
        self.topics = self.base + "topics"
        self.expiry = self.base + "expiry"
        self.queues = self.base + "queues"
        self.positions = self.base + "pipeline:positions"
        self.ledger = self.base + "pipeline:ledger"
        self.alerts = self.base + "alerts"

    def node(self, token: str) -> str:
        """One run of a server."""
        return f"{self.base}node:{token}"

    def lease(self, token: str) -> str:
        """The lease of one run of a server."""
        return f"{self.base}lease:{token}"

    def own(self, token: str) -> str:
        """The sessions of one run of a server."""
        return f"{self.base}own:{token}"

    def session(self, name: str) -> str:
        """A session, such as `client/joe/1`."""
        return f"{self.base}s:{name}"

    def inbox(self, name: str) -> str:
        """The inbox of a session."""
        return f"{self.base}inbox:{name}"

    def subject(self, subject: str) -> str:
        """The sessions of a subject, such as `joe`."""
        return f"{self.base}subject:{subject}"

    def history(self, channel: str) -> str:
        """The newest messages of a channel."""
        return f"{self.base}h:{channel}"

    def topic(self, channel: str) -> str:
        """What was configured for a channel."""
        return f"{self.base}topic:{channel}"

    def queue(self, queue: str) -> str:
        """The order of a shared queue, such as `client/joe` or `group:/a/* workers`."""
        return f"{self.base}q:{queue}"

    def queue_bodies(self, queue: str) -> str:
        """The messages of a shared queue."""
        return f"{self.base}qb:{queue}"

    def members(self, queue: str) -> str:
        """The sessions of the group that has this queue."""
        return f"{self.base}members:{queue}"

    def receivers(self, log_id: int, queue: str) -> str:
        """The sessions that still have open what was sent to the subject of this queue."""
        return f"{self.base}ptp:{log_id} {queue}"

    def letters_by(self, kind: str, value: str) -> str:
        """The letters of one value; the kinds are `code`, `receiver` and `channel`."""
        return f"{self.base}dead:{kind}:{value}"

    def letter_values(self, kind: str) -> str:
        """The values of one kind of which there are letters."""
        return f"{self.base}dead:{kind}s"

    def once(self, scope: str) -> str:
        """The id of a publish with a `key`."""
        return f"{self.base}k:{scope}"
