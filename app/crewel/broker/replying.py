"""Replies on their way to bytes."""

from __future__ import annotations

import logging
from typing import Final

from crewel.bayeux.codec import encode
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.errors import BayeuxCode
from crewel.metrics import Metrics

log = logging.getLogger(__name__)

CONNECTED: Final = b'{"channel":"/meta/connect","successful":true,"id":"%b"}'
"""The reply to a bare connect that has nothing else to tell."""
CONNECTED_WITH: Final = CONNECTED[:-1] + b',"ext":{%b}}'
"""The same, of a session with a part that has something to tell."""

Replies = list[tuple[Reply, Message | None]]
"""The replies of one exchange, each with the message that it answers; None: nobody but the server has asked."""


def encoded(reply: Reply, metrics: Metrics) -> bytes:
    """The reply's JSON; a failure is counted by its code. What JSON cannot say becomes an internal error."""
    if not reply["successful"] and "error" in reply:
        metrics.errors[reply["error"][:3]] += 1
    try:
        return encode(reply)
    except TypeError:
        log.exception("a policy or an extension put what JSON cannot say into a reply")
        plain = {name: reply[name] for name in ("channel", "id") if name in reply}
        return encode(plain | {"successful": False, "error": BayeuxCode.INTERNAL_ERROR})
