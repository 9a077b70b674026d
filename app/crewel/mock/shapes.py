"""The texts and replies of Salesforce's streaming API where they differ from those of other Bayeux servers.

Keys are in the order in which recorded replies have them. Sources: the Streaming API developer guide (error codes, handling
errors, limits, events) and public threads of client projects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Fields = dict[str, Any]

NEWEST_VERSION: Final = "68.0"
OLDEST_VERSION: Final = 37.0
TIMEOUT_MS: Final = 110_000
RECONNECT_MS: Final = 40_000
MAX_BODY: Final = 32_768

UNKNOWN_CLIENT: Final = "403::Unknown client"
AUTHENTICATION_INVALID: Final = "401::Authentication invalid"
AUTHENTICATION_MISSING: Final = "401::Request requires authentication"
HANDSHAKE_DENIED: Final = "403::Handshake denied"
DAILY_LIMIT: Final = "403::Organization total events daily limit exceeded"
CONCURRENT_LIMIT: Final = "403::Organization concurrent user limit exceeded"
SUBSCRIBE_DENIED: Final = "403:denied_by_security_policy:subscribe_denied"
CREATE_DENIED: Final = "403:denied_by_security_policy:create_denied"
SERVER_BUSY: Final = "503::Server is too busy. Please try your request again later."
VERSION_MISSING: Final = f"400::API version in the URI is mandatory. URI format: '/cometd/{NEWEST_VERSION}'"
VERSION_OLD: Final = (
    f"400::Unsupported API version. Only API versions '{OLDEST_VERSION}' and later are supported."
    f" URI format: '/cometd/{NEWEST_VERSION}'"
)
NO_CHANNEL: Final = "400::Channel name not specified"
NO_SLASH: Final = "400::Channel subscriptions must start with a leading '/'"


def invalid_connection_type(kind: object) -> str:
    """The text for an unknown transport."""
    return f"400::Invalid connection type {{{kind}}}"


def unknown_channel(name: object) -> str:
    """The text for an unknown channel."""
    return f"400::The channel you requested to subscribe to does not exist {{{name}}}"


def unknown_fields(names: list[str]) -> str:
    """The text for a PushTopic whose query, or filter, names unknown fields."""
    return f"400::Query fields {{{', '.join(names)}}} do not exist on the topic entity"


def cookie_missing(client_id: str, cookie: str) -> str:
    """The text for a client that does not send a cookie back."""
    return f"400::Client {client_id} has established a session, but no {cookie} cookie present"


def invalid_replay_id(replay_id: object) -> str:
    """The text for a replay id that never was one, or has expired. It has two spaces, which clients match."""
    return (
        f"400::The replayId {{{replay_id}}} you provided was invalid.  "
        "Please provide a valid ID, -2 to replay all events, or -1 to replay only new events."
    )


def replay_id_not_found(channel: str, given: Mapping[str, Any] | None) -> str:
    """The text for a replay map without the channel. It shows the map as Java does."""
    shown = ", ".join(f"{name}={'null' if value is None else value}" for name, value in (given or {}).items())
    return (
        f"400::The replayId for channel {{{channel}}} wasn't found using the provided replay ID map {{{{{shown}}}}}."
        " Ensure that the channel name you provided in the replay map is valid and matches the channel name used for"
        " subscribing."
    )


# Replies


def _with_id(fields: Fields, message_id: object) -> Fields:
    """Set the id in its place, or remove it if the request had none."""
    if message_id is None:
        fields.pop("id", None)
    else:
        fields["id"] = message_id
    return fields


def handshaken(client_id: str, message_id: object) -> Fields:
    """The reply to a handshake: no advice, which comes with the first connect."""
    reply: Fields = {
        "ext": {"replay": True, "payload.format": True},
        "minimumVersion": "1.0",
        "clientId": client_id,
        "supportedConnectionTypes": ["long-polling"],
        "channel": "/meta/handshake",
        "id": "",
        "version": "1.0",
        "successful": True,
    }
    return _with_id(reply, message_id)


def connected(client_id: str, message_id: object, *, is_first: bool) -> Fields:
    """The reply to a connect; only the first one has advice."""
    reply: Fields = {"clientId": client_id}
    if is_first:
        reply["advice"] = {"interval": 0, "timeout": TIMEOUT_MS, "reconnect": "retry"}
    return _with_id({**reply, "channel": "/meta/connect", "id": "", "successful": True}, message_id)


def subscribed(client_id: str, channel: str, subscription: object, message_id: object) -> Fields:
    """The reply to a subscribe or unsubscribe."""
    reply = {"clientId": client_id, "channel": channel, "id": "", "subscription": subscription, "successful": True}
    return _with_id(reply, message_id)


def disconnected(client_id: str, message_id: object) -> Fields:
    """The reply to a disconnect."""
    return _with_id({"clientId": client_id, "channel": "/meta/disconnect", "id": "", "successful": True}, message_id)


def unknown_client(channel: str, message_id: object) -> Fields:
    """The session was forgotten: idle, too old, or its instance was refreshed."""
    advice = {"interval": 0, "reconnect": "handshake"}
    return _with_id(
        {"advice": advice, "channel": channel, "id": "", "error": UNKNOWN_CLIENT, "successful": False}, message_id
    )


def ended(client_id: str, message_id: object, error: str) -> Fields:
    """The reply to a connect after which the client must stop; `DISCONNECT` comes before it."""
    return _with_id(
        {
            "clientId": client_id,
            "advice": {"reconnect": "none", "interval": 0},
            "channel": "/meta/connect",
            "id": "",
            "error": error,
            "successful": False,
        },
        message_id,
    )


DISCONNECT: Final[Fields] = {"channel": "/meta/disconnect"}
"""The message before the connect reply that ends a session."""


def handshake_denied(message_id: object, why: str = AUTHENTICATION_INVALID) -> Fields:
    """The reply to a handshake with a dead token, or one beyond a limit."""
    return _with_id(
        {
            "ext": {"sfdc": {"failureReason": why}},
            "advice": {"reconnect": "none"},
            "channel": "/meta/handshake",
            "id": "",
            "error": HANDSHAKE_DENIED,
            "successful": False,
        },
        message_id,
    )


def refused(client_id: str | None, message: Mapping[str, Any], error: str, reason: str = "") -> Fields:
    """Any other failure. `reason` is Salesforce's own, in `ext`."""
    reply: Fields = {"ext": {"sfdc": {"failureReason": reason}}} if reason else {}
    if client_id is not None:
        reply["clientId"] = client_id
    reply["channel"] = message.get("channel")
    if message.get("id") is not None:
        reply["id"] = message["id"]
    if "subscription" in message:
        reply["subscription"] = message["subscription"]
    return {**reply, "error": error, "successful": False}


def daily_limit(client_id: str, message_id: object) -> Fields:
    """The reply to a connect beyond the events of a day."""
    return {**ended(client_id, message_id, DAILY_LIMIT), "advice": {"reconnect": "none", "interval": 0}}
