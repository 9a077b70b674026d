"""The table of commands. The remote call `/service/__cmd`, `POST /admin/api/commands` and `crewel cmd` are faces of it;
docs/operating.md prints it, and `running` carries them out.

As in xmlBlaster, reading a property that is an operation does it.
"""

from __future__ import annotations

from typing import Final

from crewel.admin import node_facts, operations, session_facts, subject_facts, topic_facts
from crewel.admin.calls import Access, Argument, Command
from crewel.admin.grammar import Level
from crewel.topics.lifecycle import State


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) <= 1_000_000):
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _delay(text: str) -> int:
    if text != "-1" and not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise ValueError(text)
    return int(text)


_N: Final = "a whole number from 1 to 1000000"
_PEEKED: Final = Argument(_N, _count, 1)
_REMOVED: Final = Argument(_N, _count)
_ON: Final = Argument("true or false", _flag)
_FORCED: Final = Argument("true or false", _flag, False)
_SESSION_NAME: Final = Argument("the name of a session: client/joe/1", str)
_DELAY: Final = Argument("milliseconds, or -1", _delay)

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
    Command(_NODE, "numTopics", _R, "Topics that were published to and not erased.", node_facts.count_topics),
    Command(_NODE, "topicList", _R, "Their names.", node_facts.topics),
    Command(_NODE, "topics", _R, "The same in one line.", node_facts.topics_line),
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
    Command(_SUBJECT, "sessionList", _R, "Their names.", subject_facts.names),
    Command(_SUBJECT, "sessions", _R, "Their numbers in one line.", subject_facts.numbers),
    Command(_SUBJECT, "uptime", _R, "Seconds since its first session; 0 if it has none.", subject_facts.uptime),
    Command(_SUBJECT, "creationDate", _R, "When that was; empty if it has none.", subject_facts.creation_date),
    Command(
        _SUBJECT,
        "subjectQueueNumMsgs",
        _R,
        "Messages that wait until one of its sessions is there.",
        subject_facts.queued,
    ),
    Command(
        _SUBJECT,
        "subjectQueueMaxMsgs",
        _R,
        "Most that may.",
        lambda c: c.admin.broker.settings.ptp.subject_queue_max_entries,
    ),
    Command(
        _SUBJECT,
        "peekSubjectMessages",
        _R,
        "The first so many of them; they stay.",
        subject_facts.peek,
        _PEEKED,
    ),
    Command(_SUBJECT, "clearSubjectQueue", _X, "Drops them, without letters: how many.", subject_facts.clear),
    Command(
        _SUBJECT,
        "blockClientLogin",
        _RW,
        "Whether its logins are refused, until the server ends. Sessions that it has go on.",
        subject_facts.is_blocked,
        _ON,
        subject_facts.set_blocked,
    ),
    Command(
        _SUBJECT,
        "blockClientAndResetConnections",
        _X,
        "Refuses its logins and ends all its sessions: how many.",
        subject_facts.block_and_kill,
    ),
    Command(_SUBJECT, "killClient", _X, "Ends all its sessions: how many.", operations.kill),
    Command(_SESSION, "id", _R, "Its public name.", session_facts.identity),
    Command(_SESSION, "loginName", _R, "Its subject.", lambda c: session_facts.subject_of(c.session)),
    Command(_SESSION, "publicSessionId", _R, "Its number.", session_facts.number),
    Command(_SESSION, "qos", _R, "What its login asked for, as it is in effect.", session_facts.qos),
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
        "Whether it is delivered to. false holds it back; true delivers again, the held message in its old place.",
        session_facts.is_active,
        _ON,
        operations.set_active,
    ),
    Command(_SESSION, "holdback", _R, "Who holds it back, and why; null if nobody.", session_facts.holdback),
    Command(
        _SESSION,
        "skipCallbackMessage",
        _X,
        "The held message, or the first that waits, becomes a dead letter: how many did.",
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
        "retryCallbackNow",
        _X,
        "Ends the pause after a failure of its client: what waits goes out now. Whether there was one.",
        operations.retry,
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
        _SESSION,
        "subscriptionDump",
        _R,
        "The same with what each asks for: groups, filters and more.",
        session_facts.subscription_dump,
    ),
    Command(_TOPIC, "stateStr", _R, f"{', '.join(State.__members__)}.", topic_facts.state),
    *(
        Command(_TOPIC, name, _R, f"Whether it is {state.value}.", topic_facts.is_in(state))
        for name, state in (
            ("isUnconfigured", State.UNCONFIGURED),
            ("isAlive", State.ALIVE),
            ("isUnreferenced", State.UNREFERENCED),
            ("isSoftErased", State.SOFTERASED),
            ("isDead", State.DEAD),
        )
    ),
    Command(
        _TOPIC,
        "numSubscribers",
        _R,
        "Sessions that hear it, by its name or a pattern.",
        lambda c: len(node_facts.hearers(c)),
    ),
    Command(_TOPIC, "subscribers", _R, "Their names; not of sessions without a name.", topic_facts.subscribers),
    Command(_TOPIC, "groups", _R, "The groups that share its messages.", topic_facts.groups),
    Command(
        _TOPIC,
        "numOfHistoryEntries",
        _R,
        "Messages in its history.",
        topic_facts.of_view(lambda view: view.history, 0),
    ),
    Command(
        _TOPIC,
        "historyMaxEntries",
        _R,
        "Most that there may be; 0: it has none.",
        topic_facts.of_view(lambda view: view.settings.history_max, 0),
    ),
    Command(
        _TOPIC,
        "peekHistoryMessages",
        _R,
        "The newest so many of them, the newest first; they stay.",
        topic_facts.peek,
        _PEEKED,
    ),
    Command(_TOPIC, "clearHistoryQueue", _X, "Empties the history, and no more: how many.", topic_facts.clear),
    Command(
        _TOPIC,
        "numOfQueuedEntries",
        _R,
        "Messages of it that wait in queues, once a receiver.",
        topic_facts.of_view(lambda view: view.queued, 0),
    ),
    Command(
        _TOPIC,
        "readonly",
        _R,
        "Whether it takes one message only.",
        topic_facts.of_view(lambda view: view.settings.is_readonly, False),
    ),
    Command(
        _TOPIC,
        "destroyDelay",
        _RW,
        "Milliseconds that it lives when nothing refers to it; -1: for ever.",
        topic_facts.of_view(lambda view: view.settings.destroy_delay_ms, None),
        _DELAY,
        topic_facts.set_destroy_delay,
    ),
    Command(
        _TOPIC,
        "unSubscribeBySessionName",
        _X,
        "Ends the subscription of a session to just this channel; its client is not told. How many: 1, or 0.",
        topic_facts.unsubscribe_one,
        _SESSION_NAME,
    ),
    Command(_TOPIC, "unSubscribeAll", _X, "Ends them all: how many.", topic_facts.unsubscribe_all),
    Command(
        _TOPIC,
        "eraseTopic",
        _X,
        "Ends it: with true at once, else when what waits of it is delivered. Whether there was one.",
        topic_facts.erase,
        _FORCED,
    ),
)
"""Every property, in the order in which the documentation has them."""
