"""The names of all keys of the store; `layout` says what lies under each.

All names begin with `<storage.prefix>{crewel}:`. The braces are a hash tag: on Redis Cluster all keys lie in one slot, so
that one script may change several.
"""

from __future__ import annotations

__all__ = ["FORMAT", "Keys"]

FORMAT = 2
"""The version of this layout, which the store keeps under `format`. A server refuses a newer one. It takes an older one as it
is, and from then on it is of this version: 1 says less of what waits."""

_TAG = "{crewel}:"


class Keys:
    """The names of all keys under one `storage.prefix`."""

    __slots__ = (
        "_base",
        "alerts",
        "dead",
        "dropped",
        "epoch",
        "events",
        "expiry",
        "facts",
        "format",
        "last",
        "ledger",
        "log",
        "names",
        "nodes",
        "positions",
        "queues",
        "returned",
        "topics",
    )

    def __init__(self, prefix: str) -> None:
        self._base = prefix + _TAG
        self.format = self._base + "format"
        self.log = self._base + "log"
        self.last = self._base + "last"
        self.names = self._base + "names"
        self.epoch = self._base + "epoch"
        self.nodes = self._base + "nodes"
        self.dead = self._base + "dead"
        self.dropped = self._base + "dead:dropped"
        self.returned = self._base + "dead:returned"
        self.facts = self._base + "facts"
        self.events = self._base + "events"
        self.topics = self._base + "topics"
        self.expiry = self._base + "expiry"
        self.queues = self._base + "queues"
        self.positions = self._base + "pipeline:positions"
        self.ledger = self._base + "pipeline:ledger"
        self.alerts = self._base + "alerts"

    @property
    def base(self) -> str:
        """What all names begin with; scripts that find further keys by themselves build them from it."""
        return self._base

    def node(self, token: str) -> str:
        """One run of a server."""
        return f"{self._base}node:{token}"

    def own(self, token: str) -> str:
        """The sessions of one run of a server."""
        return f"{self._base}own:{token}"

    def session(self, name: str) -> str:
        """A session, such as `client/joe/1`."""
        return f"{self._base}s:{name}"

    def inbox(self, name: str) -> str:
        """The inbox of a session."""
        return f"{self._base}inbox:{name}"

    def subject(self, subject: str) -> str:
        """The sessions of a subject, such as `joe`."""
        return f"{self._base}subject:{subject}"

    def history(self, channel: str) -> str:
        """The newest messages of a channel."""
        return f"{self._base}h:{channel}"

    def topic(self, channel: str) -> str:
        """What was configured for a channel."""
        return f"{self._base}topic:{channel}"

    def queue(self, queue: str) -> str:
        """The order of a shared queue, such as `client/joe` or `group:/a/* workers`."""
        return f"{self._base}q:{queue}"

    def queue_bodies(self, queue: str) -> str:
        """The messages of a shared queue."""
        return f"{self._base}qb:{queue}"

    def members(self, queue: str) -> str:
        """The sessions of the group that has this queue."""
        return f"{self._base}members:{queue}"

    def receivers(self, log_id: int, queue: str) -> str:
        """The sessions that still have open what was sent to the subject of this queue."""
        return f"{self._base}ptp:{log_id} {queue}"

    def letters_by(self, kind: str, value: str) -> str:
        """The letters of one value; the kinds are `code`, `receiver` and `channel`."""
        return f"{self._base}dead:{kind}:{value}"

    def letter_values(self, kind: str) -> str:
        """The values of one kind of which there are letters."""
        return f"{self._base}dead:{kind}s"

    def once(self, scope: str) -> str:
        """The id of a publish with a `key`."""
        return f"{self._base}k:{scope}"
