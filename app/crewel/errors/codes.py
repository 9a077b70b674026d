"""Dotted codes, xmlBlaster's: `user.update.holdback`. What one is, and the list of all that xmlBlaster knows: what each means,
and when this server itself uses it.

The first word is the category, and a code stands for all below it: what holds of `user.update` holds of `user.update.error`,
but not of `user.updates`. A receiver may report any code below `user` and `communication`, also one that is not in the list.
What then happens to the message is decided in `delivery.outcomes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Self

_REPORTABLE: Final = re.compile(r"(?:user|communication)(?:\.[A-Za-z0-9_]+)+")
MAX_CODE: Final = 128
"""Most characters of a code that a receiver may report."""


class Explained(StrEnum):
    """Words of the wire, each with its meaning in one line: `NAME = word, meaning`."""

    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        """The member of this word."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


class Category(Explained):
    """Whose doing it is: the first word of a code."""

    USER = "user", "A mistake of the caller or the receiver."
    COMMUNICATION = "communication", "A transport problem; the message itself is fine."
    RESOURCE = "resource", "A resource is exhausted or unavailable; an operator can fix it."
    INTERNAL = "internal", "A fault of the server itself."
    LEGACY = "legacy", "An error without a code."


class ErrorCode(NamedTuple):
    """One code of the list."""

    code: str
    meaning: str
    is_final: bool
    """Whether the same again has no hope: something must be changed first."""
    used: str = ""
    """When this server itself uses it; empty if it only takes it from receivers."""

    @property
    def category(self) -> Category:
        """Whose doing it is."""
        return Category(self.code.partition(".")[0])


SECURITY: Final = "user.security"
"""What the codes of refusals for security reasons begin with."""


def is_reportable(code: str) -> bool:
    """Whether a receiver may report the code: `user.…` or `communication.…`, of letters, digits and `_`, at most 128
    characters."""
    return len(code) <= MAX_CODE and _REPORTABLE.fullmatch(code) is not None


def is_below(code: str, prefix: str) -> bool:
    """Whether this is the code `prefix`, or one below it."""
    return code == prefix or code.startswith(f"{prefix}.")


_STATUS_OF: Final = (
    ("user.ptp", 404),
    (SECURITY, 403),
    ("user.publish.readonly", 409),
    ("user", 400),
    ("resource.overflow", 413),
    ("resource", 503),
)


def status_of(code: str) -> int:
    """The three digits that stand for a dotted code, which are an HTTP status as well; 500 for faults of the server
    alone."""
    # The first that fits counts: narrow codes stand before wide ones.
    for prefix, status in _STATUS_OF:
        if is_below(code, prefix):
            return status
    return 500


def coded(code: str, argument: str = "", status: int | None = None) -> str:
    """`NNN:<argument>:<dotted code>`, the `error` text of a dotted code. An argument cannot smuggle in a colon: a name of a
    session, which has no spaces, has one in place of each."""
    return f"{status_of(code) if status is None else status}:{argument.replace(':', ' ')[:128]}:{code}"


CLASSES: Final = (
    "user.update",
    SECURITY,
    "user.ptp",
    "user",
    "communication.noConnection",
    "communication",
    "resource.overflow",
    "resource",
    "internal",
    "legacy",
)
"""The classes that figures count codes by: few, for receivers make codes of their own below `user` and `communication`."""


def class_of(code: str) -> str:
    """The narrowest class that a code belongs to; `internal` for what is none."""
    for each in CLASSES:
        if is_below(code, each):
            return each
    return Category.INTERNAL.value


_RETRY, _FINAL = False, True

_INTERNAL: Final = (
    ErrorCode("legacy", "An error without a code.", _FINAL),
    ErrorCode("internal", "A fault of the program or its platform.", _FINAL),
    ErrorCode(
        "internal.unknown",
        "Any other unexpected fault.",
        _FINAL,
        "An operator's request failed for a reason without its own code.",
    ),
    ErrorCode("internal.nullpointer", "A null reference.", _FINAL),
    ErrorCode("internal.illegalArgument", "A wrong argument inside the server.", _FINAL),
    ErrorCode("internal.interrupted", "A thread was interrupted unexpectedly.", _FINAL),
    ErrorCode("internal.notImplemented", "The feature is missing.", _FINAL),
    ErrorCode("internal.connectionFailure", "A server handle could not be obtained.", _FINAL),
    ErrorCode("internal.illegalState", "An object is in an illegal state.", _FINAL),
    ErrorCode("internal.disconnect", "A fault during a disconnect.", _FINAL),
    ErrorCode("internal.subscribe", "A fault during a subscribe.", _FINAL),
    ErrorCode("internal.unSubscribe", "A fault during an unsubscribe.", _FINAL),
    ErrorCode("internal.publish", "A fault during a publish.", _FINAL),
    ErrorCode("internal.publishArr", "A fault during several publishes.", _FINAL),
    ErrorCode("internal.erase", "A fault during an erase.", _FINAL),
    ErrorCode("internal.get", "A fault during a get.", _FINAL),
    ErrorCode("internal.stop", "Stops a parser; not an error.", _FINAL),
)

_RESOURCE: Final = (
    ErrorCode("resource", "A resource is exhausted; an administrator can fix it.", _RETRY),
    ErrorCode("resource.maintenance", "The server is under maintenance.", _RETRY),
    ErrorCode(
        "resource.maintenance.drained",
        "The queue was drained.",
        _RETRY,
        "An operator drained the queue of the receiver; in dead letters only.",
    ),
    ErrorCode(
        "resource.maintenance.skipped",
        "The message was skipped.",
        _RETRY,
        "An operator skipped the message; in dead letters only.",
    ),
    ErrorCode("resource.outOfMemory", "Out of memory.", _RETRY),
    ErrorCode("resource.tooManyThreads", "The thread limit is reached.", _RETRY),
    ErrorCode(
        "resource.exhaust",
        "A resource is exhausted.",
        _RETRY,
        "A cap, `limits.max_*`, or another limit that the error names is reached: something must end first. In dead letters: of"
        " a session that ended because its full queue made too many.",
    ),
    ErrorCode(
        "resource.noMoreSpace",
        "The disk is full.",
        _RETRY,
        "The memory or the disk of the store is full.",
    ),
    ErrorCode("resource.callbackServer.creation", "A callback server could not be started.", _FINAL),
    ErrorCode(
        "resource.overflow.queue.bytes",
        "A queue is full, counted in bytes.",
        _RETRY,
        "The queue of the receiver is full: in dead letters, and when a session has no room for the history that it reads.",
    ),
    ErrorCode(
        "resource.overflow.queue.entries",
        "A queue is full, counted in messages.",
        _RETRY,
        "The queue of the receiver is full: in dead letters, in the reply to a publish to a subject, and when a redrive fails"
        " for that reason.",
    ),
    ErrorCode(
        "resource.unavailable",
        "The resource is shut down or unavailable.",
        _RETRY,
        "The store, another node or the keys that verify tokens are unavailable, or did not answer: try again, a publish with a"
        " `key`.",
    ),
    ErrorCode(
        "resource.temporary.unavailable",
        "The resource is busy: try again.",
        _RETRY,
        "A rate, `limits.*_per_s`, is exceeded: try again after the time in the reply.",
    ),
    ErrorCode("resource.db.unavailable", "The database is unavailable.", _RETRY),
    ErrorCode("resource.db.block", "The database is overloaded and did not answer in time.", _RETRY),
    ErrorCode("resource.db.unknown", "Another database fault.", _RETRY),
    ErrorCode("resource.admin.unavailable", "Administration is disabled.", _FINAL),
    ErrorCode("resource.configuration", "Invalid configuration.", _FINAL),
    ErrorCode("resource.configuration.connect", "Invalid connection settings, or the peer does not exist.", _FINAL),
    ErrorCode("resource.configuration.pluginFailed", "A plug-in could not be loaded.", _FINAL),
    ErrorCode("resource.configuration.xml", "The XML parser is configured wrongly.", _FINAL),
    ErrorCode("resource.configuration.sslSocket", "Invalid TLS settings of a socket.", _FINAL),
    ErrorCode("resource.configuration.address", "A remote address is invalid.", _FINAL),
    ErrorCode("resource.fileIO", "A file could not be read or written.", _RETRY),
    ErrorCode("resource.fileIO.fileLost", "A file is lost.", _FINAL),
    ErrorCode("resource.cluster.notAvailable", "Another node cannot be reached.", _RETRY),
    ErrorCode("resource.cluster.circularLoop", "The message returned to a node that it had already passed.", _FINAL),
)

_COMMUNICATION: Final = (
    ErrorCode("communication", "A transport problem.", _RETRY),
    ErrorCode("communication.resource.temporary.unavailable", "The server is temporarily busy.", _RETRY),
    ErrorCode(
        "communication.noConnection",
        "A remote call failed.",
        _RETRY,
        "A ping was not answered in time.",
    ),
    ErrorCode(
        "communication.timeout",
        "A call took too long.",
        _RETRY,
        "`crewel reply --command` sends it when the command takes too long.",
    ),
    ErrorCode(
        "communication.responseTimeout",
        "No response arrived in time.",
        _RETRY,
        "No delivery status came within `ackWait`.",
    ),
    ErrorCode("communication.forceAsync", "The caller may not wait for a ping.", _RETRY),
    ErrorCode(
        "communication.noConnection.serverDeny",
        "The server refuses: it starts, stops, stands by, or blocks the client.",
        _RETRY,
        "An operator has blocked the subject (`blockClientLogin`).",
    ),
    ErrorCode("communication.noConnection.callbackServer.notavailable", "The client's own server is down.", _RETRY),
    ErrorCode("communication.noConnection.polling", "There is no connection; the server retries.", _RETRY),
    ErrorCode(
        "communication.noConnection.dead",
        "There is no connection; the server has given up.",
        _FINAL,
        "The receiver's session has ended; in dead letters only.",
    ),
    ErrorCode(
        "communication.user.holdback",
        "Keep this message and deliver nothing more: xmlBlaster's name for it within the server.",
        _RETRY,
    ),
)

_USER: Final = (
    ErrorCode("user", "The caller did something wrong.", _FINAL),
    ErrorCode(
        "user.update.holdback",
        "Keep this message and deliver nothing more.",
        _RETRY,
        "An operator skipped the message for which the receiver was on hold without a code; in dead letters only.",
    ),
    ErrorCode("user.update.deadMessage", "This message is poison: make it a dead letter and continue.", _FINAL),
    ErrorCode(
        "user.update.error",
        "The receiver's code failed on this message.",
        _FINAL,
        "A receiver reports it of a message that its code failed on; the server itself never does.",
    ),
    ErrorCode(
        "user.update.internalError",
        "An unexpected fault in the receiver's code.",
        _FINAL,
        "A receiver failed without a code of its own, it reported an invalid one or one that it may not report, or the server"
        " could not send the message.",
    ),
    ErrorCode("user.update.illegalArgument", "The receiver cannot use the content of the message.", _FINAL),
    ErrorCode(
        "user.update.security.authentication.accessDenied",
        "The receiver could not authenticate the server.",
        _FINAL,
    ),
    ErrorCode(
        "user.clientCode",
        "Reserved for applications.",
        _FINAL,
        "`crewel reply --command` sends it when the command fails.",
    ),
    ErrorCode("user.wrongApiUsage", "The API is used wrongly.", _FINAL),
    ErrorCode("user.configuration", "The configuration of the login is refused.", _FINAL),
    ErrorCode("user.version", "The client is too old.", _FINAL),
    ErrorCode(
        "user.configuration.maxSession",
        "The subject has too many sessions.",
        _FINAL,
        "The subject has as many sessions as the login allows.",
    ),
    ErrorCode(
        "user.configuration.connectNoPubSess",
        "The first connect of a session that the server numbers failed.",
        _FINAL,
    ),
    ErrorCode(
        "user.configuration.identicalClient",
        "Another client uses this session.",
        _FINAL,
        "Another client uses the session, or has just taken it over.",
    ),
    ErrorCode(SECURITY, "Refused for security reasons.", _FINAL),
    ErrorCode("user.security.authentication", "The login failed.", _FINAL),
    ErrorCode(
        "user.security.authentication.accessDenied",
        "The login is not permitted.",
        _FINAL,
        "There is no token, it is invalid or for another subject; or the client asks for a name, and the policy returns "
        "no identity.",
    ),
    ErrorCode("user.security.authentication.accessDenied.unknownLoginName", "There is no such login name.", _FINAL),
    ErrorCode("user.security.authentication.accessDenied.wrongPassword", "The password is wrong.", _FINAL),
    ErrorCode("user.security.authentication.illegalArgument", "The login has invalid arguments.", _FINAL),
    ErrorCode("user.security.authentication.illegalDeviceId", "The device's id is refused.", _FINAL),
    ErrorCode("user.security.authentication.illegalDeviceType", "The type of the device is refused.", _FINAL),
    ErrorCode(
        "user.security.authentication.nfc_deviceType", "This type of device may not log in with an NFC tag.", _FINAL
    ),
    ErrorCode("user.security.authentication.nfc_notRegistered", "The NFC tag is unknown.", _FINAL),
    ErrorCode("user.security.authentication.nfc_imei", "The NFC tag is on an unknown device.", _FINAL),
    ErrorCode("user.security.authentication.inactive", "The account is disabled.", _FINAL),
    ErrorCode("user.security.authentication.expired", "The account has expired.", _FINAL, "The token has expired."),
    ErrorCode(
        "user.security.authorization.notAuthorized",
        "This action is not allowed.",
        _FINAL,
        "The token, the policy or the role of the operator does not grant the operation; or `clearSessions` would end a session"
        " that is alive, which the login may not.",
    ),
    ErrorCode(
        "user.illegalArgument",
        "Invalid arguments.",
        _FINAL,
        "A field has a wrong type or value, does not exist, or asks for an unsupported feature; or a request of an operator"
        " names something that does not exist.",
    ),
    ErrorCode("user.maxSizeExceed", "There is too much data.", _FINAL),
    ErrorCode("user.publish", "The publish is invalid.", _FINAL),
    ErrorCode(
        "user.publish.readonly",
        "The topic is read-only and already has a message.",
        _FINAL,
        "A second message was published to a topic that accepts only one.",
    ),
    ErrorCode(
        "user.presence.absent",
        "The session is not present on the channel.",
        _FINAL,
        "The answer to an `update` of a session that has not entered, or whose server has forgotten that.",
    ),
    ErrorCode(
        "user.schedule.absent",
        "There is no such scheduled message.",
        _FINAL,
        "A publisher cancels a message that has been published or cancelled, or that another account has scheduled.",
    ),
    ErrorCode("user.subscribe.id", "The requested subscription id is malformed.", _FINAL),
    ErrorCode("user.subscribe.noCallback", "The subscription has no callback.", _FINAL),
    ErrorCode("user.oid.unknown", "There is no topic of this name.", _FINAL),
    ErrorCode("user.jdbc.invalid", "The database request is invalid.", _FINAL),
    ErrorCode("user.connect", "The connect is invalid.", _FINAL),
    ErrorCode("user.connect.multiple", "The client connected twice.", _FINAL),
    ErrorCode("user.notConnected", "The client is not connected.", _FINAL),
    ErrorCode("user.ptp.unknownSession", "The destination session is unknown.", _FINAL),
    ErrorCode(
        "user.ptp.unknownDestination",
        "No destination is connected, and the message may not be queued.",
        _FINAL,
        "A message without `forceQueuing` was sent to a subject that has no session; or the first publish with its `key` did"
        " not reach this destination.",
    ),
    ErrorCode(
        "user.ptp.unknownDestinationSession",
        "The destination session does not exist.",
        _FINAL,
        "A message was sent to a session that does not exist; or a dead letter cannot be redriven because its"
        " receiver's session has ended.",
    ),
    ErrorCode(
        "user.ptp.denied",
        "The receiver accepts no point-to-point messages.",
        _FINAL,
        "A message was sent to a session that logged in with `ptp: false`, or to a subject whose sessions all did.",
    ),
    ErrorCode(
        "user.message.invalid",
        "The content does not have the declared type.",
        _FINAL,
        "A dead letter cannot be redriven because its message is gone.",
    ),
    ErrorCode("user.query.invalid", "The query is malformed.", _FINAL),
    ErrorCode("user.query.type.invalid", "The query type is unknown.", _FINAL),
    ErrorCode("user.admin.invalid", "An administrator's request is invalid.", _FINAL),
)

KNOWN: Final = (*_USER, *_COMMUNICATION, *_RESOURCE, *_INTERNAL)
"""The list."""

CODES: Final[Mapping[str, str]] = {each.code: each.used for each in KNOWN if each.used}
"""The codes that this server itself uses, and when."""
