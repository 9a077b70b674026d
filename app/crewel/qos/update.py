"""What a delivery says of its message, in `ext.update` (xmlBlaster's UpdateQos).

What is the same for all receivers is encoded once a message (`shared`); what differs is added behind it. Defaults are left out.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from crewel.bayeux.codec import encode, reread
from crewel.qos.publish import life_ends

_UNTOLD: Final = frozenset({"destination", "subscribable"})
"""What is stored with a message and not delivered: its other receivers."""
ERASED: Final = "ERASED"
"""The state of the notice that a topic was erased."""
FAILED: Final = "FAILED"
"""The state of the notice that the server has ended a subscription."""
POINT_TO_POINT: Final = "__subId:PtP"
"""The `subscription` of a message that was addressed to its receiver."""


class Origin(NamedTuple):
    """Where a message comes from, as far as its receivers may know."""

    id: str
    received: str
    """When it was accepted: nanoseconds since 1970, in digits."""
    sender: str = ""
    """Public name of the session that published it; empty for the server and for back ends."""
    qos: bytes = b""
    """What differs from the defaults of PublishQos, a JSON object, or empty."""
    is_persistent: bool = False
    redrive_of: str = ""
    """The dead letter that it was."""
    is_initial: bool = False
    """Whether it comes from a history because of a subscribe."""
    state: str = ""
    """`ERASED` for the notice that its topic was erased, `FAILED` for that of a subscription; empty for a message."""
    node: str = ""
    """Name of the node that accepted it, as the log has it where several share the store; empty if that is not known."""

    @classmethod
    def stored(cls, position: int, sender: str, qos: bytes, redrive_of: str = "", node: str = "") -> Origin:
        """Of a message at this place of the log."""
        return cls(str(position), f"{position}000", sender, qos, is_persistent=True, redrive_of=redrive_of, node=node)

    @classmethod
    def notice(cls, position: int, state: str) -> Origin:
        """Of the notice of this state, at this place."""
        return cls(str(position), f"{position}000", state=state)


def shared(wire: bytes, origin: Origin, here: str = "", now_ms: int = 0) -> bytes:
    """The message with the `ext.update` that all its receivers at this node, `here`, share, without the three braces at its
    end. Raises TypeError or ValueError if its stored form cannot be encoded so: its `ext` is no object, or its QoS no JSON."""
    update = _fields(origin)
    if origin.node and origin.node != here:
        update["route"] = _route(origin, here, now_ms)
    # The common message has no `ext` of its own: it is extended as bytes, without parsing it.
    if b'"ext"' in wire:  # in the data, perhaps; if it is the publisher's own, the two become one
        fields = reread(wire)
        ext = {**fields.pop("ext", {})}  # raises TypeError if it is no object
        ext.pop("update", None)  # so that ours is the last field
        return encode(fields)[:-1] + b',"ext":' + encode({**ext, "update": update})[:-2]
    return wire[:-1] + b',"ext":{"update":' + encode(update)[:-1]


def _fields(origin: Origin) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": origin.id, "rcvTimestamp": origin.received}
    if origin.sender:
        fields["sender"] = origin.sender
    if origin.is_persistent:
        fields["persistent"] = True
    if origin.qos:
        fields |= {name: value for name, value in reread(origin.qos).items() if name not in _UNTOLD}
    if origin.is_initial:
        fields["initial"] = True
    if origin.state:
        fields["state"] = origin.state
    if origin.redrive_of:
        fields["clientProperties"] = {**fields.get("clientProperties", {}), "__redriveOf": origin.redrive_of}
    return fields


def _route(origin: Origin, here: str, now_ms: int) -> list[dict[str, Any]]:
    """The nodes that have handled the message, in their order. A stratum counts the nodes since the one that accepted it. A
    timestamp says when it came there, nanoseconds since 1970, in digits; of a message that is not stored, only when it came
    here."""
    first = {"node": origin.node, "stratum": 0, "timestamp": origin.received, "dirtyRead": False}
    second = {"node": here, "stratum": 1, "timestamp": f"{now_ms}000000", "dirtyRead": False}
    if not origin.is_persistent:
        second["timestamp"] = first.pop("timestamp")
    return [first, second]


def counts_down_to(origin: Origin) -> int:
    """When the life of this message ends, milliseconds since 1970; 0 if it has no end, or none that counts down."""
    if b'"lifeTime"' not in origin.qos:
        return 0
    life_ms: int = reread(origin.qos).get("lifeTime", 0)  # it may be the name of a client property
    return life_ends(int(origin.received) // 1000, life_ms) // 1000 if life_ms > 0 else 0


def own(
    shared_json: bytes,
    subscription: str = "",
    redeliver: int = 0,
    queue: tuple[int, int] | None = None,
    remaining_ms: int | None = None,
) -> bytes:
    """The whole message for one receiver, from what `shared` began. `subscription` is the pattern by which it receives the
    channel, if that is not the channel itself. `queue` is its place in this response, and how many wait in all. `remaining_ms`
    is the rest of its life, if that has an end."""
    more = b""
    if subscription:
        more += b',"subscription":' + encode(subscription)
    if redeliver:
        more += b',"redeliver":%d' % redeliver
    if queue is not None:
        more += b',"queue":{"index":%d,"size":%d}' % queue
    if remaining_ms is not None:
        more += b',"remainingLife":%d' % remaining_ms
    return shared_json + more + b"}}}"
