"""Every figure that `/metrics` shows, declared once.

The hot path adds to plain integers; they become Prometheus samples only when they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from math import isnan
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from crewel.errors.codes import CLASSES, CODES, is_below
from crewel.qos.connect import OverflowPolicy
from crewel.version import VERSION


class Declared(NamedTuple):
    """A figure: its exposed name, its kind, what it counts, and its label if it has one."""

    name: str
    kind: str
    meaning: str
    label: str | None = None
    values: tuple[str, ...] = ()
    """Values of the label that are shown before the first of them occurs: with 0, so that the first is an increase."""


_RESOURCES: Final = tuple(code for code in CODES if is_below(code, "resource"))


DECLARED = (
    Declared("crewel_build_info", "gauge", "Always 1; the label is the version of the server.", "version"),
    Declared(
        "crewel_ready", "gauge", "1 while the server accepts all traffic, as /health/ready answers, and 0 otherwise."
    ),
    Declared("crewel_store_up", "gauge", "1 while the store can be used, and 0 otherwise; missing without a store."),
    Declared("crewel_store_memory_bytes", "gauge", "Memory of the store; missing while the store does not answer."),
    Declared("crewel_store_max_memory_bytes", "gauge", "The limit of the memory of the store; 0: no limit."),
    Declared(
        "crewel_store_busy_cores",
        "gauge",
        "Cores that the thread of the store has used in the last minute, for all that share it; 1 is all that it can use.",
    ),
    Declared(
        "crewel_store_disk_wait_ratio",
        "gauge",
        "The part of the last minute in which the thread of the store has written to its disk and waited for it.",
    ),
    Declared(
        "crewel_store_steps_per_second",
        "gauge",
        "Scripts of the store in a second, in the last minute, of all that share it.",
    ),
    Declared("crewel_store_file_bytes", "gauge", "Size of the file of the embedded store."),
    Declared("crewel_disk_free_bytes", "gauge", "Free bytes of the disk of the embedded store."),
    Declared("crewel_disk_bytes", "gauge", "Free and used bytes of the disk of the embedded store."),
    Declared(
        "crewel_last_commit_timestamp_seconds",
        "gauge",
        "When the store last knew all that had ended: seconds since 1970. It stops while commits fail.",
    ),
    Declared(
        "crewel_last_backup_timestamp_seconds",
        "gauge",
        "The time of the last crewel backup: seconds since 1970; missing before the first one.",
    ),
    Declared(
        "crewel_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the certificate of http.tls_cert expires: seconds since 1970; missing without one.",
    ),
    Declared(
        "crewel_receivers_in_trouble",
        "gauge",
        "Sessions in trouble, by cause, as the list of receivers filters them. A session may have several causes.",
        "cause",
    ),
    Declared(
        "crewel_queues_in_trouble",
        "gauge",
        "Queues of subjects and consumer groups that are full, or soon or nearly so, or fall behind, by cause. All servers and"
        " workers that share the store report the same, except for the last: those report it whose members take messages.",
        "cause",
    ),
    Declared("crewel_sessions", "gauge", "Sessions that have not ended, also those whose client is away."),
    Declared("crewel_held_connects", "gauge", "Connects that the server holds until a message arrives."),
    Declared("crewel_channels", "gauge", "Channels that the server knows."),
    Declared(
        "crewel_topics",
        "gauge",
        "Topics that the server knows: channels with a publish, and channels in the store.",
    ),
    Declared("crewel_connections", "gauge", "Open connections."),
    Declared(
        "crewel_workers_failing",
        "gauge",
        "Workers that have failed to start five times in a row and are started again and again; 0 without cluster.workers.",
    ),
    Declared("crewel_workers", "gauge", "Workers that serve the address, as cluster.workers says."),
    Declared(
        "crewel_nodes",
        "gauge",
        "Live servers that share the store, including this one; 0 without cluster.enabled.",
    ),
    Declared(
        "crewel_inherited_sessions_total", "counter", "Sessions taken over from other nodes, which died or ended."
    ),
    Declared(
        "crewel_connections_moved_total",
        "counter",
        "Deprecated, and always 0: workers forward requests. Use crewel_forwarded_total.",
    ),
    Declared(
        "crewel_forwarded_total",
        "counter",
        "Requests and WebSocket frames forwarded to the node that has their session.",
    ),
    Declared("crewel_forwarded_open", "gauge", "Forwarded requests and WebSockets that are open."),
    Declared(
        "crewel_bus_lost_total",
        "counter",
        "Transient messages from other nodes that did not reach the subscribers of this one.",
    ),
    Declared("crewel_sockets", "gauge", "Open WebSockets."),
    Declared(
        "crewel_task_restarts_total",
        "counter",
        "Restarts of a long-lived task of the server after a failure.",
        "task",
    ),
    Declared(
        "crewel_descriptor_shortages_total",
        "counter",
        "How often the process ran out of file descriptors and stopped accepting connections for a while.",
    ),
    Declared("crewel_tasks", "gauge", "Tasks of the event loop. A number that only grows indicates a leak."),
    Declared("crewel_handshakes_total", "counter", "Handshakes that opened a session, or took one over."),
    Declared(
        "crewel_sessions_expired_total", "counter", "Sessions that ended because their client sent no connect in time."
    ),
    Declared(
        "crewel_lost_cookies_total",
        "counter",
        "First connects without the browser cookie of their handshake, so that their session could not be used.",
    ),
    Declared("crewel_connects_total", "counter", "Connects received."),
    Declared("crewel_publishes_total", "counter", "Publishes accepted from clients and from the server."),
    Declared("crewel_deliveries_total", "counter", "Messages sent to a receiver, including those sent again."),
    Declared("crewel_resends_total", "counter", "Messages sent again because they were not acknowledged."),
    Declared(
        "crewel_resends_busy_total",
        "counter",
        "Messages sent again to a client that is connected and busy: it has not replied yet, or has no room for them.",
    ),
    Declared("crewel_redeliveries_total", "counter", "Messages queued again because their receiver failed."),
    Declared(
        "crewel_dropped_total",
        "counter",
        "Messages that met a full queue, by its policy, of which dropOldest drops some; and those dropped because the server"
        " could not make a dead letter (noLetter).",
        "policy",
        (*(policy.value for policy in OverflowPolicy), "noLetter"),
    ),
    Declared(
        "crewel_ended_total",
        "counter",
        "Messages that ended for a reliable session or in a shared queue, by reason: all stored messages, and others"
        " that expired or ended with their session.",
        "reason",
    ),
    Declared(
        "crewel_filter_failures_total", "counter", "Filters that the server could not evaluate, once for each message."
    ),
    Declared(
        "crewel_filters_over_budget_total",
        "counter",
        "Messages that a filter could not evaluate within its budget, once for each receiver.",
    ),
    Declared("crewel_unhandled_total", "counter", "Publishes to service channels without a handler."),
    Declared("crewel_stored_publishes_total", "counter", "Publishes stored in the log."),
    Declared(
        "crewel_publish_steps_total",
        "counter",
        "Steps that append publishes to the log. crewel_stored_publishes_total divided by it is the size of a group.",
    ),
    Declared(
        "crewel_foreign_entries_total",
        "counter",
        "Entries of the log from other nodes that this node has taken or passed over.",
    ),
    Declared(
        "crewel_tail_on_replica",
        "gauge",
        "1 while this node reads messages of other nodes from a replica of the store, and 0 while from the primary; missing"
        " with cluster.tails=primary.",
    ),
    Declared(
        "crewel_tail_replicas_left_total",
        "counter",
        "How often this node stopped reading from a replica: it was silent, cut_off or behind, or had an other_history.",
        "reason",
    ),
    Declared(
        "crewel_store_losses_total",
        "counter",
        "How often the server found that the store had lost confirmed messages, for example after a fail-over.",
    ),
    Declared(
        "crewel_lost_sessions_total", "counter", "Sessions that the store has lost, or that have lost subscriptions."
    ),
    Declared(
        "crewel_lost_messages_total",
        "counter",
        "Messages of this server that the store has lost after confirming them.",
    ),
    Declared(
        "crewel_publishes_delayed_total",
        "counter",
        "Publishes that waited because dead letters or deliveries of their channel were pending.",
    ),
    Declared("crewel_waiting", "gauge", "Stored messages that wait for a receiver, counted once for each receiver."),
    Declared("crewel_queued", "gauge", "Messages in the queues of subjects and groups."),
    Declared("crewel_letters_total", "counter", "Dead letters stored, by the class of their code.", "class", CLASSES),
    Declared("crewel_letters_kept", "gauge", "Dead letters in the store."),
    Declared("crewel_letters_dropped", "gauge", "Dead letters dropped because of a limit on their number or memory."),
    Declared(
        "crewel_letters_redriven_total",
        "counter",
        "Dead letters redriven, by outcome.",
        "outcome",
    ),
    Declared("crewel_letters_returned", "gauge", "Dead letters of messages that had been redriven before."),
    Declared("crewel_letters_discarded_total", "counter", "Dead letters discarded by an operator."),
    Declared("crewel_letters_restored_total", "counter", "Discarded dead letters restored by an operator."),
    Declared("crewel_letters_shown_total", "counter", "Dead letters sent to the live channel."),
    Declared(
        "crewel_letters_not_shown_total",
        "counter",
        "Dead letters for which the live channel, hook or webhook had no room. The store has them.",
        "to",
    ),
    Declared("crewel_letters_posted_total", "counter", "Dead letters that the webhook accepted."),
    Declared("crewel_letters_not_posted_total", "counter", "Dead letters that the webhook did not accept in time."),
    Declared("crewel_webhook_failures_total", "counter", "Failed requests to the dead letter webhook."),
    Declared(
        "crewel_held_sessions", "gauge", "Sessions on hold: they receive nothing until an operator activates them."
    ),
    Declared(
        "crewel_unclaimed",
        "gauge",
        "Pending messages for which the client reports no listener.",
    ),
    Declared(
        "crewel_events_lost_total",
        "counter",
        "Events that were not written, because there were too many or no store was available.",
    ),
    Declared(
        "crewel_trimmed_unread_total",
        "counter",
        "Facts and events trimmed before the data pipeline had read them.",
        "stream",
    ),
    Declared("crewel_facts_dropped_total", "counter", "Facts dropped because they took too much memory."),
    Declared("crewel_subscriptions", "gauge", "Subscriptions of all sessions."),
    Declared(
        "crewel_presences", "gauge", "Sessions of this server that are present on a channel, once for each channel."
    ),
    Declared("crewel_addresses", "gauge", "Addresses that have a session or have recently used a limited operation."),
    Declared(
        "crewel_queued_bytes", "gauge", "Bytes of the messages queued in memory for all sessions, each counted once."
    ),
    Declared("crewel_scheduled_messages", "gauge", "Messages in the store that are to be published later."),
    Declared("crewel_limited_total", "counter", "Requests beyond a limit, by its setting.", "limit"),
    Declared("crewel_errors_total", "counter", "Unsuccessful replies, by their three-digit code.", "code"),
    Declared("crewel_refused_publishes_total", "counter", "Refused publishes, by their three-digit code.", "code"),
    Declared(
        "crewel_refused_publish_reasons_total",
        "counter",
        "Refused publishes, by the code of the reason, as the list of error codes has it; other if it has none.",
        "reason",
        _RESOURCES,
    ),
    Declared("crewel_refused_payloads_total", "counter", "Requests and frames refused as a whole.", "fault"),
)


GAUGES: Final = frozenset(
    each.name.removeprefix("crewel_") for each in DECLARED if each.kind == "gauge" and each.label is None
)
"""Names of the figures that are read when they are asked for."""


def _declared(gauge: str) -> str:
    if gauge not in GAUGES:
        raise ValueError(f"{gauge} is not the name of a declared gauge")
    return gauge


class Metrics(Collector):
    """The counters of one server. The attributes are the figures' names without `crewel_` and `_total`."""

    def __init__(self) -> None:
        self.build_info = {VERSION: 1}
        self.handshakes = 0
        self.sessions_expired = 0
        self.lost_cookies = 0
        self.connects = 0
        self.publishes = 0
        self.deliveries = 0
        self.resends = 0
        self.resends_busy = 0
        self.redeliveries = 0
        self.dropped: Counter[str] = Counter()
        self.no_letters: Counter[str] = Counter()
        """Why those have no dead letter that were dropped as `noLetter`: for the log."""
        self.ended: Counter[str] = Counter()
        self.filter_failures = 0
        self.filters_over_budget = 0
        self.unhandled = 0
        self.stored_publishes = 0
        self.publish_steps = 0
        self.foreign_entries = 0
        self.tail_replicas_left: Counter[str] = Counter()
        self.store_losses = 0
        self.lost_messages = 0
        self.lost_sessions = 0
        self.publishes_delayed = 0
        self.letters: Counter[str] = Counter()
        self.letters_redriven: Counter[str] = Counter()
        self.letters_discarded = 0
        self.letters_restored = 0
        self.letters_shown = 0
        self.letters_not_shown: Counter[str] = Counter()
        self.letters_posted = 0
        self.letters_not_posted = 0
        self.webhook_failures = 0
        self.events_lost = 0
        self.trimmed_unread: Counter[str] = Counter()
        self.facts_dropped = 0
        self.limited: Counter[str] = Counter()
        self.limited_last: dict[str, str] = {}
        """The account that was beyond the limit last, by the limit: for the log."""
        self.errors: Counter[str] = Counter()
        self.refused_publishes: Counter[str] = Counter()
        self.refused_publish_reasons: Counter[str] = Counter()
        self.refused_channels: dict[str, str] = {}
        """The channel of the newest refused publish, by the code: for the log."""
        self.refused_payloads: Counter[str] = Counter()
        self.inherited_sessions = 0
        self.connections_moved = 0
        self.forwarded = 0
        self.bus_lost = 0
        self.task_restarts: Counter[str] = Counter()
        self.descriptor_shortages = 0
        self.receivers_in_trouble: Mapping[str, int] = {}
        """As they were counted last, as are the queues."""
        self.queues_in_trouble: Mapping[str, int] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._counts: dict[str, Callable[[], Awaitable[float]]] = {}
        self.on_measure: list[Callable[[], Awaitable[None]]] = []
        """Called when the figures are asked for, before they are read."""

    @property
    def lost(self) -> int:
        """Messages that were dropped and are in no dead letter."""
        return self.dropped["dropOldest"] + self.dropped["noLetter"]

    def left_no_letter(self, why: str) -> None:
        """A message was dropped that has no dead letter; `why` is a `NoLetter`."""
        self.dropped["noLetter"] += 1
        self.no_letters[why] += 1

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Let `name` (a declared gauge, without `crewel_`) be read by this function. Raises ValueError for another one."""
        self._gauges[_declared(name)] = read

    def count(self, name: str, read: Callable[[], Awaitable[float]]) -> None:
        """Let the gauge `name` be counted by this function, which may take long: it stands as `measure` has counted it last.
        Raises ValueError as `gauge` does."""
        self._counts[_declared(name)] = read

    async def measure(self) -> None:
        """Count what takes long."""
        for name, read in self._counts.items():
            value = await read()
            self._gauges[name] = partial(float, value)
        for look in self.on_measure:
            await look()

    def collect(self) -> Iterable[Metric]:
        """The figures as they stand, for the Prometheus registry."""
        for declared in DECLARED:
            attribute = declared.name.removeprefix("crewel_").removesuffix("_total")
            kind = GaugeMetricFamily if declared.kind == "gauge" else CounterMetricFamily
            if declared.label is None:
                value = self.value(attribute, declared.kind)
                yield kind(declared.name, declared.meaning, value=None if isnan(value) else value)
            else:
                family = kind(declared.name, declared.meaning, labels=[declared.label])
                counts: Mapping[str, float] = getattr(self, attribute)
                for label, count in sorted({**dict.fromkeys(declared.values, 0), **counts}.items()):
                    family.add_metric([label], count)
                yield family

    def value(self, attribute: str, kind: str = "gauge") -> float:
        """What this figure, without `crewel_` and `_total`, says now; 0 for a gauge that nothing reads, NaN for what is not
        known."""
        if kind == "gauge":
            return self._gauges[attribute]() if attribute in self._gauges else 0
        return float(getattr(self, attribute))

    def exposition(self) -> bytes:
        """The text that `/metrics` answers."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)
