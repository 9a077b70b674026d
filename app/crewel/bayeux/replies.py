"""Replies: each request message gets exactly one, with its channel and its id."""

from __future__ import annotations

from typing import Any

from crewel.bayeux.message import Fields, Message, echoed_id

Reply = dict[str, Any]

VERSION = "1.0"


def ok(message: Message) -> Reply:
    """The successful reply. Never with `data` (clients would take it for an event) nor `clientId`."""
    reply: Reply = {"channel": message.fields["channel"], "successful": True}
    if message.id is not None:
        reply["id"] = message.id
    if "subscription" in message.fields:
        # Unchanged in type and value: clients look their listeners up by it.
        reply["subscription"] = message.fields["subscription"]
    return reply


def failed(message: Message, error: str) -> Reply:
    """The unsuccessful reply with its error text."""
    reply = ok(message)
    reply["successful"] = False
    reply["error"] = error
    return reply


def refused(element: object, error: str) -> Reply:
    """The reply to an element that is not even a message: it echoes what there is to echo."""
    fields: Fields = element if isinstance(element, dict) else {}
    reply: Reply = {"successful": False, "error": error}
    if isinstance(fields.get("channel"), str):
        reply["channel"] = fields["channel"]
    if (message_id := echoed_id(fields)) is not None:
        reply["id"] = message_id
    if "subscription" in fields:
        reply["subscription"] = fields["subscription"]
    return reply


def handshaken(message: Message, client_id: str, transports: list[str], advice: dict[str, Any]) -> Reply:
    """The successful handshake reply. The list is the server's own in its own order: clients negotiate."""
    reply = ok(message)
    reply["version"] = reply["minimumVersion"] = VERSION
    reply["clientId"] = client_id
    reply["supportedConnectionTypes"] = transports
    reply["advice"] = advice
    return reply
