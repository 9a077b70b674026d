"""What a subscription may ask for, and the field that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict, Unpack

from crewel.bayeux.message import Fields
from crewel.client.message import Message

Position = Mapping[str, Mapping[str, str]]
"""How far a receiver is: `{"/a": {"epoch": "…", "id": "…"}}`. Both texts are the server's, and nobody else's to read."""


class SubscribeOptions(TypedDict, total=False):
    """What a subscription may ask for (docs/subscribing.md); what is not given, or None, is as the server has it."""

    history: int | None
    """How many messages of the history come first; -1: all, 0: none."""
    newest_first: bool | None
    """False: they come in the order in which they were published."""
    initial_update: bool | None
    """False: none of them comes."""
    since: Position | None
    """Begin with what follows this position, the `position` of an earlier subscription; `recovered` tells whether it is all."""
    filter: str | None
    """A JMESPath expression over `data`, `channel`, `clientProperties` and `sender`: what it is true for is delivered."""
    group: str | None
    """Each message goes to one member of the group only."""
    local: bool | None
    """False: what the client itself publishes does not come."""
    notify: bool | None
    """False: nothing is told when the topic is erased."""
    multi_subscribe: bool | None
    """False: a second subscription to the channel changes the first one."""
    update_oneway: bool | None
    """Messages need not be settled, and are not kept."""
    newest_only: bool | None
    """A message that a newer one has overtaken in the queue is left out."""
    persistent: bool | None
    """The subscription, and the session, outlive the server."""


_CALLED: Final = {
    "initial_update": "initialUpdate",
    "since": "since",
    "filter": "filter",
    "group": "group",
    "local": "local",
    "notify": "notify",
    "multi_subscribe": "multiSubscribe",
    "update_oneway": "updateOneway",
    "newest_only": "newestOnly",
    "persistent": "persistent",
}
_HISTORY: Final = {"history": "numEntries", "newest_first": "newestFirst"}


def subscribe_ext(ext: Fields | None, **options: Unpack[SubscribeOptions]) -> Fields | None:
    """The `ext` of a subscribe with these options; None if there is nothing to say. Raises TypeError for an option that
    there is not."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    unknown = given.keys() - _CALLED.keys() - _HISTORY.keys()
    if unknown:
        raise TypeError(f"a subscription has no option {', '.join(sorted(unknown))}")
    asked: Fields = {_CALLED[name]: value for name, value in given.items() if name in _CALLED}
    history = {_HISTORY[name]: value for name, value in given.items() if name in _HISTORY}
    if history:
        asked["history"] = history
    elif "since" in asked:
        asked.setdefault("initialUpdate", False)  # a channel that it does not name begins now
    if not asked:
        return ext
    before = ext.get("subscribe") if ext is not None else None
    return {**(ext or {}), "subscribe": {**(before if isinstance(before, dict) else {}), **asked}}


class Progress:
    """How far a receiver is in the histories of some channels.

    In a queue the higher priorities go first. So a message says that all older ones of its priority and above have come, and
    nothing of those below: only messages of the lowest priority that was seen move the place. What a newer one has overtaken
    is then asked for again, with some that have come already.
    """

    def __init__(self) -> None:
        self._places: dict[str, dict[str, str]] = {}
        self._lowest: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    @property
    def position(self) -> dict[str, dict[str, str]]:
        """The position, for `since`."""
        return {channel: dict(place) for channel, place in self._places.items()}

    def begin(self, position: Position) -> None:
        """Be there, in the histories that this position names, and stay where it was in all others."""
        for channel, place in position.items():
            self._places[channel] = dict(place)
            self._lowest.pop(channel, None)

    def advance(self, message: Message) -> None:
        """Move on to this message, if it is one of a history: neither an old one of it, nor one that no history keeps."""
        place = self._places.get(message.channel)
        if place is None or message.id is None:
            return
        if message.is_initial or message.is_addressed or message.is_erased or message.life_time_ms == 0:
            return
        if message.priority <= self._lowest.get(message.channel, message.priority):
            self._lowest[message.channel] = message.priority
            place["id"] = message.id
