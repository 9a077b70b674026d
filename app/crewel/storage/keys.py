"""The keys of the store: the name of each, and with type, fields, lifetime, writers and readers what lies there.

docs/explanation/storage.md is generated from the table. All names begin with `<storage.prefix>{crewel}:`. The braces are a
hash tag: on Redis Cluster all keys lie in one slot, so that one script may change several.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = 2
"""The version of this layout, which the store keeps under `format`. A server refuses any other one. It is the layout of 1.0.0,
the first release: each later version reads it (docs/reference/stability.md)."""
RESTORING = "restoring"
"""What stands under `format` while a restore has begun and is not complete. All versions refuse it."""

_TAG = "{crewel}:"


class Shares:
    """The names of what a bounded store has of its accounts (`scripts/shared/shares.lua`)."""

    __slots__ = ("bytes", "charged", "entries", "of_account", "texts")

    def __init__(self, store: str) -> None:
        self.entries = f"{store}:held:entries"
        self.bytes = f"{store}:held:bytes"
        self.texts = f"{store}:held:texts"
        self.charged = f"{store}:charged"
        self.of_account = f"{store}:of:"
        """What the key of each account begins with."""


class Keys:
    """The names of all keys under one `storage.prefix`."""

    def __init__(self, prefix: str) -> None:
        self.base = prefix + _TAG
        """What all names begin with; scripts that find further keys build them from it."""
        self.format = self.base + "format"
        self.log = self.base + "log"
        self.last = self.base + "last"
        self.names = self.base + "names"
        self.epoch = self.base + "epoch"
        self.nodes = self.base + "nodes"
        self.tags = self.base + "tags"
        self.secret = self.base + "secret"
        self.dead = self.base + "dead"
        self.dropped = self.base + "dead:dropped"
        self.returned = self.base + "dead:returned"
        self.letter_texts = self.base + "dead:texts"
        self.letter_uses = self.base + "dead:uses"
        self.letter_bytes = self.base + "dead:bytes"
        self.letter_shares = Shares(self.dead)
        self.bin = self.base + "dead:bin"
        self.binned_at = self.base + "dead:bin:at"
        self.facts = self.base + "facts"
        self.events = self.base + "events"
        self.topics = self.base + "topics"
        self.expiry = self.base + "expiry"
        self.queues = self.base + "queues"
        self.message_shares = Shares(self.base + "stored")
        self.kept = self.base + "kept"
        self.scheduled = self.base + "scheduled"
        self.scheduled_messages = self.base + "scheduled:messages"
        self.scheduled_held = self.base + "scheduled:held"
        self.scheduled_refused = self.base + "scheduled:refused"
        self.positions = self.base + "pipeline:positions"
        self.ledger = self.base + "pipeline:ledger"
        self.alerts = self.base + "alerts"
        self.losses = self.base + "losses"
        self.audit = self.base + "audit"
        self.audit_shares = Shares(self.audit)
        self.server_events = self.base + "server:events"
        self.restored = self.base + "restored"
        self.backed_up = self.base + "backed-up"
        self.jobs = self.base + "jobs"
        self.open_jobs = self.base + "jobs:open"

    def node(self, token: str) -> str:
        """One run of a server."""
        return f"{self.base}node:{token}"

    def left(self, token: str) -> str:
        """What a dead node has left behind, until its sessions are another node's."""
        return f"{self.base}left:{token}"

    def lease(self, token: str) -> str:
        """The lease of one run of a server."""
        return f"{self.base}lease:{token}"

    def own(self, token: str) -> str:
        """The sessions of one run of a server."""
        return f"{self.base}own:{token}"

    def copied(self, connection: str) -> str:
        """The newest mark of a connection that writes (confirmation.py)."""
        return f"{self.base}copied:{connection}"

    def groups(self, token: str) -> str:
        """The queues of the groups that have members at one run of a server."""
        return f"{self.base}groups:{token}"

    def unstored(self, token: str) -> str:
        """The names of the sessions of one run of a server that are not stored."""
        return f"{self.base}unstored:{token}"

    def job(self, job_id: str) -> str:
        """One job of operators."""
        return f"{self.base}job:{job_id}"

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

    def dead_letters_by(self, kind: str, value: str) -> str:
        """The dead letters of one value; the kinds are `code`, `receiver` and `channel`."""
        return f"{self.base}dead:{kind}:{value}"

    def dead_letter_values(self, kind: str) -> str:
        """The values of one kind of which there are dead letters."""
        return f"{self.base}dead:{kind}s"

    def met(self, generation: str) -> str:
        """What a run or a promotion of the store had at first."""
        return f"{self.base}met:{generation}"

    def spent(self, id_: str) -> str:
        """The mark of a code that was used, or of a sign-in that was signed out."""
        return f"{self.base}spent:{id_}"

    def once(self, scope: str) -> str:
        """The id of a publish with a `key`."""
        return f"{self.base}k:{scope}"


@dataclass(frozen=True, slots=True)
class Key:
    """One key, or one family of keys that differ in what stands in angle brackets."""

    name: str
    type: str
    fields: str
    lifetime: str
    written_by: str
    read_by: str
    meaning: str


_EVER = "no limit"
KEYS: tuple[Key, ...] = (
    Key(
        "format",
        "string",
        "a whole number; `restoring` while a restore is not complete",
        _EVER,
        "the server, at its first start on an empty store; `crewel restore`",
        "each start",
        "Version of this layout, which is that of 1.0.0. The server refuses any other one.",
    ),
    Key(
        "log",
        "stream",
        "id `<log id>-0`; `c` channel; `b` message as JSON, less its id; `s` sender's name; `x` session excluded from"
        " delivery; `q` PublishQos as JSON; `r` dead id of its previous dead letter, `n` how many dead letters it has"
        " had, `h` its failed attempts, JSON, `e` 1 if an operator edited it; `t` its destination;"
        " `p` the account that is charged for it, if the store was more than half full;"
        " `w` if the inboxes of other nodes' sessions have the message: their names and its"
        " record, as JSON; `o` the node that accepted it, if several share the store; `k` for a change of a topic: the"
        " token of the node that made it, and `b` is the change, as JSON; `s` to `k` only if needed",
        "until no cursor and no pending message needs it",
        "publish, send, redrive, configure, erase, trim",
        "each start; publishers overtaken by another one; loading of backlogs",
        "The persistent messages, in order. Log ids are strictly increasing microseconds of the store's clock.",
    ),
    Key(
        "last",
        "string",
        "log id",
        _EVER,
        "publish, send, redrive, configure, erase, unsubscribe, schedule, lose",
        "all",
        "The newest log id, even if the log has been trimmed.",
    ),
    Key(
        "names",
        "string",
        "a whole number",
        _EVER,
        "login",
        "login",
        "Counter for the numbers of sessions, as in `client/joe/-7`.",
    ),
    Key(
        "s:<session>",
        "hash",
        "`owner` token; `r` options of its login, as JSON; `at` log id up to which it has accounted for the log, while that is"
        " not its owner's cursor; `batch` highest reserved batch number; `ending` log id, once its end has begun; `death`"
        " code and reason of the end, as JSON,"
        " if its receiver has failed permanently; `away` while its client has not come: token, milliseconds since 1970 at"
        " which a server first took it over without its client, and those at which it ends if its client had gone before"
        " (0: neither); `d` why it receives nothing at present, as JSON; `s:<pattern>` log id"
        " after which it is subscribed; `p:<pattern>` options of that subscription, as JSON, also for groups;"
        " `c:<pattern> <since>` log id at which it was unsubscribed, until the cursor has passed it; `n:<channel>`"
        " until it is acknowledged, log id of the notice that the topic was erased or that the server has ended the"
        " subscription, the latter followed by a space and the reason as JSON; `o:<log id>` and `i:<log id>` a pending"
        " message, with its body in the log or in the inbox:"
        " `<attempts>:<bytes>:<channel>:<priority>:<expires>:<source>` less the defaults at its end (5, 0, none), where"
        " the source is its shared queue",
        "until the session has ended",
        "login, subscribe, unsubscribe, open, commit, spill, adopt, inherit, close, hold, away, redrive, send, lease_queued,"
        " requeue, end",
        "each start; recall",
        "A reliable session.",
    ),
    Key(
        "inbox:<session>",
        "hash",
        "log id: the fields of the log's entry, packed; and `f` as in `qb:<queue>`. `p` of a message that was trimmed from the"
        " log is the account of this session, or empty",
        "until it is acknowledged",
        "spill, redrive, send, lease_queued, requeue, commit, end",
        "loading of backlogs; dead letters",
        "Pending messages of a session, kept outside the log: those trimmed from it, point-to-point messages,"
        " messages from shared queues, and redriven dead letters.",
    ),
    Key(
        "subject:<subject>",
        "set",
        "session names",
        "until its last session has ended",
        "login, end",
        "login",
        "The sessions of a subject, to limit their number.",
    ),
    Key(
        "k:<scope>",
        "string",
        "log id; for other steps than publish, also the rest of their result",
        "two minutes",
        "publish, send, lease_queued, requeue, redrive, schedule",
        "publish, send, lease_queued, requeue, redrive, schedule",
        "A publish with a `key`, by channel, subject and key: a repeated publish returns the same id. Other steps also"
        " keep their results here, so that they can be repeated: the id of a dead letter, the leased messages; the"
        " outcomes of a send, in the order of its deliveries, and by place, as JSON, under `k:places <scope>`; for a"
        " second, the pending messages of a receiver.",
    ),
    Key(
        "topics",
        "set",
        "channels",
        "as their `topic:<channel>`",
        "publish, configure, erase, forget",
        "each start",
        "The channels that have settings or a history, or that were erased while messages waited.",
    ),
    Key(
        "topic:<channel>",
        "hash",
        "`settings` as configured, as JSON; `epoch` a text; `past` 1 if its whole history has expired; `added` total"
        " bytes added to the history; `erased` 1, as the only field: it was soft-erased, and its messages may still be"
        " queued",
        "until the topic is erased and none of its messages is queued",
        "publish, configure, expire, erase, forget, lose",
        "history, histories; each start",
        "A topic that has settings or a history. Its epoch changes whenever messages that a client has seen may be"
        " gone.",
    ),
    Key(
        "h:<channel>",
        "stream",
        "as `log`; `z` total bytes added to the history before it; `e` its expiry in microseconds since 1970, if any",
        "the newest, up to the limit of the topic; until it expires",
        "publish, expire, erase",
        "history, histories; each start",
        "The history of a topic: copies under the ids of the log.",
    ),
    Key(
        "expiry",
        "sorted set",
        "`<log id> <channel>` and `<log id> <queue>`; the score is milliseconds since 1970",
        "until then",
        "publish, send, lease_queued, requeue, expire, erase, discard_waiting, commit, end",
        "expire",
        "Expiry times of messages in histories and shared queues.",
    ),
    Key(
        "queues",
        "sorted set",
        "names; the score is the milliseconds since 1970 of the last addition",
        "as their `q:<queue>`",
        "publish, send, redrive, lease_queued, requeue, expire, discard_waiting, unsubscribe, end",
        "each start; the sweeper",
        "The shared queues that are not empty.",
    ),
    Key(
        "q:<queue>",
        "sorted set",
        "`<9 - priority>:<log id>`; all scores are 0",
        "until it is empty",
        "publish, send, redrive, lease_queued, requeue, expire, discard_waiting, unsubscribe, end",
        "lease_queued; operators",
        "The order of a shared queue: `client/joe` of a subject, or `group:<pattern> <group>`.",
    ),
    Key(
        "qb:<queue>",
        "hash",
        "log id: the fields of the log's entry, packed; also `a` how often it may have been sent, `f` the receivers"
        " that failed to process it, `e` its expiry in microseconds since 1970, but with `r` as in the log",
        "until it is empty",
        "publish, send, redrive, lease_queued, requeue, expire, discard_waiting, unsubscribe, end",
        "lease_queued; operators",
        "The messages of a shared queue.",
    ),
    Key(
        "members:<queue>",
        "set",
        "session names",
        "until its last member has left",
        "subscribe, unsubscribe, end, keep_groups",
        "requeue, unsubscribe, end",
        "The members of a group; the empty name is one of those that are kept. Its queue ends with the last one.",
    ),
    Key(
        "ptp:<id> <queue>",
        "set",
        "session names; with a `!` before the name if the message ended there without an acknowledgement",
        "until one of them has acknowledged the message, or none has it",
        "send, lease_queued, requeue, commit, end",
        "requeue, commit, end",
        "The sessions for which a subject's message is pending: when the last of them ends, the message waits for the"
        " subject again.",
    ),
    Key(
        "scheduled",
        "sorted set",
        "ids of scheduled messages, which are numbers of the log; the score is when they are to be published, or tried"
        " again, milliseconds since 1970",
        "until it is published or cancelled",
        "schedule, publish, postpone, cancel",
        "each server, every `bayeux.sweep_ms`; operators",
        "The order of the messages that are to be published later.",
    ),
    Key(
        "scheduled:messages",
        "hash",
        "id: packed as in an inbox, `p` the account that is charged for it, `c` channel, `b` message as JSON, `s` sender's"
        " name, `x` session excluded from delivery, `q` `ext.publish` as JSON, `d` when it is to be published, milliseconds"
        " since 1970",
        "as in `scheduled`",
        "schedule, publish, cancel",
        "the server that publishes them; operators",
        "The messages that are to be published later.",
    ),
    Key(
        "scheduled:held",
        "hash",
        "account: number of its scheduled messages",
        "until it has none",
        "schedule, publish, cancel",
        "schedule",
        "Limits the scheduled messages of each account.",
    ),
    Key(
        "scheduled:refused",
        "hash",
        "id: the reason",
        "until it is published or cancelled",
        "postpone, publish, cancel",
        "operators",
        "Why scheduled messages could not be published when they were due.",
    ),
    Key(
        "stored:held:bytes",
        "sorted set",
        "accounts: `subject joe`, `address 192.0.2.7`, or empty; the score is the bytes of their messages",
        "until the next count, every few seconds while the store is more than half full",
        "charge",
        "each server, once a second; operators",
        "What each account has in the log, the histories, the shared queues, the inboxes and scheduled messages. The empty"
        " account has what came from the server itself, and from sessions without a name before the store was half full.",
    ),
    Key(
        "stored:held:entries",
        "sorted set",
        "accounts; the score is how many messages they have there",
        "as `stored:held:bytes`",
        "charge",
        "operators",
        "How many messages each account has in the store.",
    ),
    Key(
        "stored:charged",
        "string",
        "a whole number",
        _EVER,
        "charge",
        "each server, once a second",
        "How often it was counted what accounts have in the store.",
    ),
    Key(
        "facts",
        "stream",
        "`t` type; `d` JSON; the types are in [facts](reference/facts.md)",
        "about the newest `storage.facts_max_entries`, and about `storage.facts_max_bytes` at most",
        "publish, send, lease_queued, requeue, expire, erase, login, subscribe, unsubscribe, commit, close, hold, redrive,"
        " bin, discard, restore, discard_waiting, end, schedule, cancel, lose, trim_facts",
        "the pipeline",
        "What happened to each message, for the audit.",
    ),
    Key(
        "events",
        "stream",
        "`d` JSON, a group of events; see [events](reference/events.md)",
        "the newest, up to `events.max_bytes`",
        "events",
        "the pipeline",
        "Telemetry of sessions, failures, latencies and traffic.",
    ),
    Key(
        "pipeline:positions",
        "hash",
        "`facts`, `events`: `id` of the newest entry in the tables of the pipeline, and `count`, the total number"
        " of entries of the stream up to it (or null), as JSON",
        _EVER,
        "the pipeline",
        "the server, to report that it trims entries that the pipeline has not read; `crewel pipeline doctor`",
        "Progress of the resident job of the pipeline, written after each of its commits.",
    ),
    Key(
        "pipeline:ledger",
        "hash",
        "name of a job: number of its newest written batch",
        _EVER,
        "the pipeline",
        "the pipeline",
        "Prevents duplicate writes of the pipeline when a batch is repeated.",
    ),
    Key(
        "met:<generation>",
        "hash",
        "`from` the newest log id that it had; `facts` the id of its newest fact; `ms` when a server first found it,"
        " milliseconds since 1970; token of a server that had seen more: number of messages that are missing here",
        "a day",
        "meet, lose",
        "each server, whenever it connects",
        "A run of the store, or a replica that was promoted, as the first server found it.",
    ),
    Key(
        "losses",
        "hash",
        "`times`; `messages` the total number of confirmed messages that are missing; `newest` the last fact `lost`",
        _EVER,
        "lose",
        "`crewel doctor`",
        "Known losses of the store by a crash, a fail-over or a restore.",
    ),
)
