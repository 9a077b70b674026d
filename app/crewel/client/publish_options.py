"""The options of a publish, its message, batches, and publishing again until the server has answered."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from random import random
from types import TracebackType
from typing import Any, Final, Literal, Self, TypedDict, TypeVar, Unpack

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.bayeux.z85 import encode_z85
from crewel.client.arguments import check_names
from crewel.client.client_message import CONTENT_TYPE, Reply, SendPayload, channel_name, is_successful
from crewel.client.errors import (
    ClientError,
    NotConnectedError,
    NotStored,
    PayloadRefusedError,
    PublishRefused,
    RequestTimeoutError,
    SocketClosedError,
    TransportError,
    is_of_session,
    publish_refused,
)
from crewel.client.retry import Backoff, BackoffRule
from crewel.client.time_units import in_milliseconds
from crewel.client.traces import NO_TRACES, Traces
from crewel.qos.fields import Options
from crewel.qos.publish import DESTINATION, PUBLISH

Distribute = Literal["all", "one"]
_PLAIN: Final = Options(*(row for row in PUBLISH.rows if row.name not in ("destinations", "history_max")))
"""The options that the client passes on as they are."""
MAX_RETRY_S: Final = 100.0
"""How long a publish may be tried again: servers keep a key for 120 s, and the last attempt may take a while."""
PAUSES: Final = BackoffRule(initial=0.1, factor=2.0, maximum=2.0)
"""Between two attempts."""
BINARY_TYPE: Final = "application/octet-stream"
"""The content type of bytes, unless the publisher says another."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Destination:
    """One receiver of a point-to-point message (docs/how-to/point-to-point.md)."""

    to: str
    """A session, `client/joe/1`, or a subject, `client/joe`."""
    force_queuing: bool = False
    """Whether a message to a subject without a session waits for one."""
    distribute: Distribute = "all"
    """Which of a subject's sessions get it."""


Address = str | Destination
"""A destination, or only its name."""


class PublishOptions(TypedDict, total=False):
    """The options of a publish, as in `crewel.qos.publish` (docs/reference/client.md). What is not
    given, or None, is as the server has it. Times are in seconds.
    """

    persistent: bool | None
    priority: int | str | None
    life_time: float | None
    force_destroy: bool | None
    force_update: bool | None
    to: Address | Iterable[Address] | None
    """Its destinations."""
    force_queuing: bool | None
    """Whether a message to a subject without a session waits for one, for destinations that are names only."""
    distribute: Distribute | None
    """Which of a subject's sessions get it, for destinations that are names only."""
    subscribable: bool | None
    reply_to: str | None
    key: str | None
    properties: Fields | None
    readonly: bool | None
    history_max: int | None
    destroy_delay: float | None
    administrative: bool | None
    deliver_at: datetime | float | None
    """When it is published: a datetime with a time zone, or seconds since 1970 (docs/how-to/scheduled-messages.md)."""
    deliver_after: float | None
    """How much later it is published."""
    content_type: str | None
    """What the data is, such as `image/png`: receivers find it as `content_type`. Data that is bytes always has one."""


def publication(
    channel: str, data: Any, ext: Fields | None = None, function: str = "publish", **options: Unpack[PublishOptions]
) -> Fields:
    """The message that publishes `data`. Raises ValueError for a channel that takes no publish, TypeError for one that is
    no text, and for an unknown option, which names the function that got it."""
    check_names(function, options, PublishOptions.__annotations__)
    name = channel_name(channel)
    parsed = parse(name)
    if parsed is None or parsed.is_wildcard or name.startswith("/meta/"):
        kind = "meta channel" if name.startswith("/meta/") else "wildcard"
        raise ValueError(f"nothing can be published to {channel}, which is a {kind}")
    content_type = options.pop("content_type", None)
    if content_type is not None and not (isinstance(content_type, str) and content_type):
        raise ValueError(f"content_type is a media type such as image/png, not {content_type!r}")
    if isinstance(data, bytes | bytearray | memoryview):
        data, ext = _binary(bytes(data), content_type or BINARY_TYPE), {**(ext or {}), "binary": {}}
    elif content_type is not None:
        options["properties"] = {**(options.get("properties") or {}), CONTENT_TYPE: content_type}
    message: Fields = {"channel": name, "data": data}
    qos = _qos(**options)
    if qos:
        asked = ext.get("publish") if ext is not None else None
        ext = {**(ext or {}), "publish": {**(asked if isinstance(asked, dict) else {}), **qos}}
    # A dict of its own: extensions write into it, a token for example.
    return message if ext is None else {**message, "ext": {**ext}}


def _binary(content: bytes, content_type: str) -> Fields:
    """Bytes as the official client's `BinaryExtension` has them."""
    return {"data": encode_z85(content), "last": True, "meta": {CONTENT_TYPE: content_type}}


def _qos(
    *,
    to: Address | Iterable[Address] | None = None,
    force_queuing: bool | None = None,
    distribute: Distribute | None = None,
    history_max: int | None = None,
    **same: Any,
) -> Fields:
    qos = _PLAIN.write(in_milliseconds(same))
    if history_max is not None:
        qos["history"] = {"maxEntries": history_max}
    if to is not None:
        addresses = [to] if isinstance(to, str | Destination) else to
        qos["destination"] = [_destination(each, force_queuing, distribute) for each in addresses]
    elif force_queuing is not None or distribute is not None:
        raise ValueError("force_queuing and distribute need `to`")
    return qos


def _destination(address: Address, force_queuing: bool | None, distribute: Distribute | None) -> Fields:
    if not isinstance(address, Destination):
        address = Destination(address, force_queuing or False, distribute or "all")
    is_one = address.distribute != "all"
    return DESTINATION.write(
        {
            "to": address.to,
            "force_queuing": address.force_queuing or None,
            "distribute": address.distribute if is_one else None,
        }
    )


class Batch:
    """Collects until its block ends, then sends everything at once, in order.

    If the block raises, nothing is sent. If the server refuses some of the
    messages, leaving the block raises `PublishRefused` for the first of them;
    `replies` has the reply to each.
    """

    def __init__(self, request: SendPayload, traces: Traces = NO_TRACES) -> None:
        self._request, self._traces = request, traces
        self._messages: list[Fields] = []
        self.replies: list[Reply] = []
        """One reply for each message, in the order of publishing, once the block has ended."""

    def publish(self, channel: str, data: Any, ext: Fields | None = None, **options: Unpack[PublishOptions]) -> None:
        """Add one message. Raises ValueError for a channel that takes no publish."""
        # As it is now: a loop may use its data again.
        message = copy.deepcopy(publication(channel, data, ext, **options))
        with self._traces.sending("publish", message):
            self._messages.append(message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None or not self._messages:
            return
        messages, self._messages = self._messages, []
        try:
            self.replies = [Reply(reply) for reply in await self._sent(messages)]
        except ClientError as failure:
            for message in messages:
                self._traces.failed(message, type(failure).__name__, str(failure))
            raise
        refusals = []
        for message, reply in zip(messages, self.replies, strict=True):
            if not is_successful(reply):
                refusals.append(refusal := publish_refused(reply))
                self._traces.failed(message, refusal.error_code or type(refusal).__name__, str(refusal))
        for refusal in refusals:
            raise refusal

    async def _sent(self, messages: list[Fields]) -> list[Fields]:
        try:
            return await self._request(messages)
        except SocketClosedError as closed:
            if closed.is_about_a_batch_of(len(messages)):
                raise PayloadRefusedError(str(closed)) from None  # as over HTTP
            raise


def check_retry_for(retry_for: float) -> float:
    """`retry_for`, in seconds. Raises ValueError beyond the time for which a key is good."""
    if not 0 <= retry_for <= MAX_RETRY_S:
        raise ValueError(
            f"retry_for is 0 to {MAX_RETRY_S:g} seconds, because servers forget a key after 120, not {retry_for:g}"
        )
    return retry_for


async def retry_until_stored(attempt: Callable[[asyncio.Event], Awaitable[_T]], retry_for: float) -> _T:
    """What the first successful attempt returns. An attempt sets the event that it gets when it sends the message. Raises at
    once what a repeat cannot change. When `retry_for` seconds have passed, raises the last failure that leaves the outcome
    open, if there is one, else the last one."""
    loop = asyncio.get_running_loop()
    deadline, pauses = loop.time() + retry_for, Backoff(PAUSES, random)
    failure: ClientError | None = None
    sent = asyncio.Event()
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                try:
                    return await attempt(sent)
                except (TransportError, NotConnectedError, PublishRefused) as error:
                    if not may_be_repeated(error):
                        raise
                    # A program that reads "nothing was sent" publishes again, with another key.
                    if _leaves_open(error) or not _leaves_open(failure):
                        failure = error
                sent.clear()
                await asyncio.sleep(pauses.failed())
    except TimeoutError:
        if sent.is_set() and not _leaves_open(failure):
            raise RequestTimeoutError(f"no answer within {retry_for:g} s") from failure
        raise failure or NotConnectedError(f"no session within {retry_for:g} s") from None


def _leaves_open(error: ClientError | None) -> bool:
    """Whether the message may be stored after this failure."""
    return isinstance(error, TransportError | NotStored)


def may_be_repeated(error: ClientError) -> bool:
    """Whether it has not been stored, or the outcome is unknown. After a lost session the client makes another."""
    # It stays too large or too deep, however often it is sent.
    if isinstance(error, PayloadRefusedError):
        return False
    return not isinstance(error, PublishRefused) or isinstance(error, NotStored) or is_of_session(error)
