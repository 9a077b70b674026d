"""Dotted codes, xmlBlaster's: `user.update.holdback`. What one is, and the list of all that xmlBlaster knows: what each means,
and when this server itself uses it.

The first word is the category, and a code stands for all below it: what holds of `user.update` holds of `user.update.error`,
but not of `user.updates`. A receiver may report any code below `user` and `communication`, also one that is not in the list.
What then happens to the message is decided in `delivery.outcomes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Category(StrEnum):
    """Whose doing it is: the first word of a code."""

    USER = "user"
    COMMUNICATION = "communication"
    RESOURCE = "resource"
    INTERNAL = "internal"
    LEGACY = "legacy"

    @property
    def meaning(self) -> str:
        """Whose doing it is, in one line."""
        return _MEANINGS[self]


_MEANINGS = {
    Category.USER: "Who asked, or who received, did something wrong.",
    Category.COMMUNICATION: "Transport trouble: nothing is wrong with the message.",
    Category.RESOURCE: "Something is short or away; an operator can mend it.",
    Category.INTERNAL: "A fault of the server itself.",
    Category.LEGACY: "From before there were codes.",
}


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


def is_below(code: str, prefix: str) -> bool:
    """Whether this is the code `prefix`, or one below it."""
    return code == prefix or code.startswith(f"{prefix}.")


_STATUS_OF: Final = (
    ("user.ptp", 404),
    ("user.security", 403),
    ("user.publish.readonly", 409),
    ("user", 400),
    ("resource.overflow", 413),
    ("resource", 503),
)


def status_of(code: str) -> int:
    """The three digits that stand for a dotted code, which are an HTTP status as well; 500 for faults of the server
    alone."""
    for prefix, status in _STATUS_OF:
        if is_below(code, prefix):
            return status
    return 500


def coded(code: str, argument: str = "", status: int | None = None) -> str:
    """`NNN:<argument>:<dotted code>`, the `error` text of a dotted code; an argument cannot smuggle in a colon."""
    return f"{status_of(code) if status is None else status}:{argument.replace(':', ' ')[:128]}:{code}"


CLASSES: Final = (
    "user.update",
    "user.security",
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
    ErrorCode("legacy", "An error from before there were codes.", _FINAL),
    ErrorCode("internal", "A fault of the program or of what it runs on.", _FINAL),
    ErrorCode(
        "internal.unknown",
        "An unexpected fault without a better class.",
        _FINAL,
        "What an operator asked for failed in a way that has no code of its own.",
    ),
    ErrorCode("internal.nullpointer", "Something was used that is not there.", _FINAL),
    ErrorCode("internal.illegalArgument", "A wrong argument within the server.", _FINAL),
    ErrorCode("internal.interrupted", "A thread was interrupted unexpectedly.", _FINAL),
    ErrorCode("internal.notImplemented", "The feature is missing.", _FINAL),
    ErrorCode("internal.connectionFailure", "The handle of a server could not be had.", _FINAL),
    ErrorCode("internal.illegalState", "An object is in a state that is forbidden.", _FINAL),
    ErrorCode("internal.disconnect", "A fault while a disconnect was done.", _FINAL),
    ErrorCode("internal.subscribe", "A fault while a subscribe was done.", _FINAL),
    ErrorCode("internal.unSubscribe", "A fault while an unsubscribe was done.", _FINAL),
    ErrorCode("internal.publish", "A fault while a publish was done.", _FINAL),
    ErrorCode("internal.publishArr", "A fault while several publishes were done.", _FINAL),
    ErrorCode("internal.erase", "A fault while an erase was done.", _FINAL),
    ErrorCode("internal.get", "A fault while a get was done.", _FINAL),
    ErrorCode("internal.stop", "Stops a parser; no error.", _FINAL),
)

_RESOURCE: Final = (
    ErrorCode("resource", "Something is short; an administrator can mend it.", _RETRY),
    ErrorCode("resource.maintenance", "It is being maintained: try later.", _RETRY),
    ErrorCode("resource.outOfMemory", "The memory is used up.", _RETRY),
    ErrorCode("resource.tooManyThreads", "The limit of threads is reached.", _RETRY),
    ErrorCode(
        "resource.exhaust",
        "Something is used up.",
        _RETRY,
        "A cap is reached, `limits.max_*`, or another bound that the error names: something must end first.",
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
        "The queue of the receiver is full; in dead letters only.",
    ),
    ErrorCode(
        "resource.overflow.queue.entries",
        "A queue is full, counted in messages.",
        _RETRY,
        "The queue of the receiver is full; in dead letters, and where one cannot be sent again for that reason.",
    ),
    ErrorCode(
        "resource.unavailable",
        "It is shut down, or away.",
        _RETRY,
        "The store cannot be asked, or did not answer: with a `key`, try again.",
    ),
    ErrorCode(
        "resource.temporary.unavailable",
        "It is busy for a moment: repeat.",
        _RETRY,
        "A rate is exceeded, `limits.*_per_s`: repeat it after the time that the answer says.",
    ),
    ErrorCode("resource.db.unavailable", "The database is gone.", _RETRY),
    ErrorCode("resource.db.block", "The database did not answer in time, for it was asked too much.", _RETRY),
    ErrorCode("resource.db.unknown", "Another fault of the database.", _RETRY),
    ErrorCode("resource.admin.unavailable", "Administration is switched off.", _FINAL),
    ErrorCode("resource.configuration", "Wrong configuration.", _FINAL),
    ErrorCode("resource.configuration.connect", "Wrong settings of a connection, or no peer at its end.", _FINAL),
    ErrorCode("resource.configuration.pluginFailed", "A plug-in could not be loaded.", _FINAL),
    ErrorCode("resource.configuration.xml", "What reads XML is configured wrongly.", _FINAL),
    ErrorCode("resource.configuration.sslSocket", "The TLS settings of a socket are wrong.", _FINAL),
    ErrorCode("resource.configuration.address", "A remote address is invalid.", _FINAL),
    ErrorCode("resource.fileIO", "A file could not be read or written.", _RETRY),
    ErrorCode("resource.fileIO.fileLost", "A file has vanished.", _FINAL),
    ErrorCode("resource.cluster.notAvailable", "Another node cannot be reached.", _RETRY),
    ErrorCode("resource.cluster.circularLoop", "The message came back to a node that it had passed.", _FINAL),
)

_COMMUNICATION: Final = (
    ErrorCode("communication", "Transport trouble.", _RETRY),
    ErrorCode("communication.resource.temporary.unavailable", "The server is busy for a moment.", _RETRY),
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
        "`crewel reply --command` answers so when the command takes too long.",
    ),
    ErrorCode(
        "communication.responseTimeout",
        "There was neither a yes nor a no in time.",
        _RETRY,
        "No status of a delivery came within `ackWait`.",
    ),
    ErrorCode("communication.forceAsync", "The caller may not wait for a ping.", _RETRY),
    ErrorCode(
        "communication.noConnection.serverDeny",
        "The server refuses: it starts, stops, stands by, or blocks the client.",
        _RETRY,
        "An operator keeps the subject out (`blockClientLogin`).",
    ),
    ErrorCode("communication.noConnection.callbackServer.notavailable", "The client's own server is down.", _RETRY),
    ErrorCode("communication.noConnection.polling", "There is no connection, and it is tried again.", _RETRY),
    ErrorCode(
        "communication.noConnection.dead",
        "There is no connection, and it is tried no more.",
        _FINAL,
        "The receiver's session has ended; in dead letters only.",
    ),
    ErrorCode("communication.user.holdback", "xmlBlaster's own name for a holdback within the server.", _RETRY),
)

_USER: Final = (
    ErrorCode("user", "The caller did something wrong.", _FINAL),
    ErrorCode(
        "user.update.holdback",
        "Keep my message, and send me nothing more.",
        _RETRY,
        "An operator has taken the message out of the queue of its receiver; in dead letters only.",
    ),
    ErrorCode("user.update.deadMessage", "This message is poison: make it a dead letter, and continue.", _FINAL),
    ErrorCode(
        "user.update.error",
        "The receiver's code failed on this message.",
        _FINAL,
        "All members of a group, or sessions of a subject, have failed a message, and how is not known any more.",
    ),
    ErrorCode(
        "user.update.internalError",
        "An unexpected fault in the receiver's code.",
        _FINAL,
        "A receiver reported what is no code, or one that it may not report.",
    ),
    ErrorCode("user.update.illegalArgument", "The message holds what the receiver cannot use.", _FINAL),
    ErrorCode(
        "user.update.security.authentication.accessDenied",
        "The receiver does not believe that the message comes from its server.",
        _FINAL,
    ),
    ErrorCode(
        "user.clientCode",
        "Free for what applications raise.",
        _FINAL,
        "`crewel reply --command` answers so when the command fails.",
    ),
    ErrorCode("user.wrongApiUsage", "The interface is used wrongly.", _FINAL),
    ErrorCode("user.configuration", "The login is refused as it is configured.", _FINAL),
    ErrorCode("user.version", "The client is too old.", _FINAL),
    ErrorCode(
        "user.configuration.maxSession",
        "The subject has too many sessions.",
        _FINAL,
        "The subject has as many sessions as the login allows.",
    ),
    ErrorCode(
        "user.configuration.connectNoPubSess",
        "The first connect failed, of a session that the server numbers.",
        _FINAL,
    ),
    ErrorCode(
        "user.configuration.identicalClient",
        "Another client is this session.",
        _FINAL,
        "Another client is the session, or has just taken it over.",
    ),
    ErrorCode("user.security", "Refused for reasons of security.", _FINAL),
    ErrorCode("user.security.authentication", "The login failed.", _FINAL),
    ErrorCode(
        "user.security.authentication.accessDenied",
        "The login lacks rights.",
        _FINAL,
        "There is no token, or one that does not hold, or for another subject.",
    ),
    ErrorCode("user.security.authentication.accessDenied.unknownLoginName", "There is no such login name.", _FINAL),
    ErrorCode("user.security.authentication.accessDenied.wrongPassword", "The password is wrong.", _FINAL),
    ErrorCode("user.security.authentication.illegalArgument", "What the login says is invalid.", _FINAL),
    ErrorCode("user.security.authentication.illegalDeviceId", "The device's id is refused.", _FINAL),
    ErrorCode("user.security.authentication.illegalDeviceType", "The type of the device is refused.", _FINAL),
    ErrorCode(
        "user.security.authentication.nfc_deviceType", "Such devices may not log in with a near-field tag.", _FINAL
    ),
    ErrorCode("user.security.authentication.nfc_notRegistered", "The near-field tag is unknown.", _FINAL),
    ErrorCode("user.security.authentication.nfc_imei", "The near-field tag is on an unknown device.", _FINAL),
    ErrorCode("user.security.authentication.inactive", "The account is disabled.", _FINAL),
    ErrorCode("user.security.authentication.expired", "The account has expired.", _FINAL, "The token has expired."),
    ErrorCode(
        "user.security.authorization.notAuthorized",
        "This action is not allowed.",
        _FINAL,
        "It is for operators only; or a history is read that the session may not subscribe to.",
    ),
    ErrorCode(
        "user.illegalArgument",
        "Wrong arguments.",
        _FINAL,
        "A field has a wrong type or value, does not exist, or asks for what this server does not offer.",
    ),
    ErrorCode("user.maxSizeExceed", "There is too much data.", _FINAL),
    ErrorCode("user.publish", "The publish cannot be used.", _FINAL),
    ErrorCode(
        "user.publish.readonly",
        "The topic is for reading only, and has a message.",
        _FINAL,
        "A topic that takes one message was published to again.",
    ),
    ErrorCode("user.subscribe.id", "The id that the subscription was to have is malformed.", _FINAL),
    ErrorCode("user.subscribe.noCallback", "The subscription has nowhere to deliver to.", _FINAL),
    ErrorCode("user.oid.unknown", "There is no topic of this name.", _FINAL),
    ErrorCode("user.jdbc.invalid", "The database was asked wrongly.", _FINAL),
    ErrorCode("user.connect", "The connect cannot be used.", _FINAL),
    ErrorCode("user.connect.multiple", "Connected twice.", _FINAL),
    ErrorCode("user.notConnected", "Connect first.", _FINAL),
    ErrorCode("user.ptp.unknownSession", "The session that the message is for is unknown.", _FINAL),
    ErrorCode(
        "user.ptp.unknownDestination",
        "No receiver of the message is connected, and it is not to be queued.",
        _FINAL,
        "A message was sent to a subject of whom no session is there, without `forceQueuing`.",
    ),
    ErrorCode(
        "user.ptp.unknownDestinationSession",
        "There is no such session that the message is for.",
        _FINAL,
        "A message was sent to a session that is not there; or a dead letter cannot go to its receiver again, for that session"
        " has ended.",
    ),
    ErrorCode(
        "user.ptp.denied",
        "The receiver takes no messages that are addressed to it.",
        _FINAL,
        "A message was sent to a session, or to a subject, that logged in with `ptp: false`.",
    ),
    ErrorCode(
        "user.message.invalid",
        "The content is not of the type that it says.",
        _FINAL,
        "A dead letter cannot be sent again, for nothing is left of its message.",
    ),
    ErrorCode("user.query.invalid", "The query cannot be read.", _FINAL),
    ErrorCode("user.query.type.invalid", "There is no such kind of query.", _FINAL),
    ErrorCode("user.admin.invalid", "An administrator asked for something impossible.", _FINAL),
)

KNOWN: Final = (*_USER, *_COMMUNICATION, *_RESOURCE, *_INTERNAL)
"""The list."""

CODES: Final[Mapping[str, str]] = {each.code: each.used for each in KNOWN if each.used}
"""The codes that this server itself uses, and when."""
