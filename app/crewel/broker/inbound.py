"""The way in: from the elements of a payload to their replies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from crewel.bayeux.codec import HANDSHAKE_NAMES
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.admission.limiter import Limiter
from crewel.broker.admission.publishes_in_flight import PublishesInFlight
from crewel.broker.client_ids import new_secret
from crewel.broker.exchange import Exchange, Peer
from crewel.broker.handler_steps import Promise, Steps, complete, resume, start
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.meta_handlers import MetaHandlers
from crewel.broker.payers import payers_of, payers_with_address
from crewel.broker.publishing.publish_handler import Publisher, channel_of, not_stored
from crewel.broker.refusals import refusal
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, State
from crewel.broker.sessions.handshakes import HANDSHAKE
from crewel.errors import DENIED_BY_POLICY, BayeuxCode, Denied, Limited, Refused, StoreError, denied

_Outcome = Reply | Steps[Reply]
"""What a handler gives: the reply, or the steps to it."""

_Pending = tuple[Message, Steps[Reply], Awaitable[Any]]
"""A message whose handler waits for something."""

Answering = asyncio.Task[None] | Promise[bool]
"""Ends when a payload has been answered for which something had to be waited for."""


class Receiver(Protocol):
    """What takes what peers send: `Inbound`, and before it `nodes.request_router.Router` where servers share a store."""

    def receive(self, peer: Peer, elements: list[Any]) -> Answering | None:
        """Answer these elements through `peer.send`: at once, and return None; or, if something must be waited for, later,
        and return what ends with the answer."""


def when_answered(answering: Answering, function: Callable[[object], object]) -> None:
    """Call this when it ends. Where the store was waited for, that is in the midst of what others have waited for."""
    if isinstance(answering, Promise):
        answering.then(function)
    else:
        answering.add_done_callback(function)


class _TurnOver:
    """The turn has ended: others go first, and then the elements that have no reply yet."""


_TURN_OVER: Final = _TurnOver()
_NEW: Final = State.NEW
"""Asked for with each message: a member of an enumeration is a slow look-up."""
_SHORT = 8  # elements that are processed without a look at the clock


@dataclass(eq=False)
class Inbound:
    """Processes what peers send."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _publisher: Publisher
    _sessions: dict[str, Session]
    _meta: MetaHandlers
    _limits: Limiter

    def __post_init__(self) -> None:
        mailboxes = self._mailboxes
        self._outbound, self._dispatchers, self._times = mailboxes.outbound, mailboxes.dispatchers, mailboxes.times
        self._connects, self._browsers = mailboxes.connects, mailboxes.connects.browsers
        self._pressure, self._host = mailboxes.pressure, mailboxes.host
        self._settings = self._runtime.settings
        self._loop = self._runtime.loop
        self._spawn = self._runtime.spawn
        self._turns = self._runtime.turns
        self._in_flight = PublishesInFlight()

    def receive(self, peer: Peer, elements: list[Any]) -> Answering | None:
        """Process the elements one after another, each as far as it need not wait: see `Receiver`."""
        count = len(elements)
        if count == 1 and self._connects.hold_plain(peer, elements[0]):
            return None
        exchange = Exchange(peer, elements)
        self._find_session(exchange)
        if count > _SHORT and (session := exchange.session) is not None and (payers := payers_with_address(session)):
            stored = sum(map(_is_only_stored, elements))
            if stored > _SHORT:
                exchange.wait()
                return self._spawn(self._process_admitted(exchange, payers[0], stored))
        if self._pressure.is_on and (relief := self._relief(exchange)) is not None:
            exchange.wait()
            return self._spawn(self._process_relieved(exchange, relief))
        pending = self._process(exchange)
        if pending is None:
            self._outbound.answer(exchange)
            return None
        exchange.wait()
        self._wait(exchange, pending)
        return exchange if exchange.result is None else None

    async def _process_admitted(self, exchange: Exchange, payer: str, count: int) -> None:
        """Process it when so many messages of its account may come."""
        await self._in_flight.enter(payer, count)
        try:
            relief = self._relief(exchange) if self._pressure.is_on else None
            if relief is None:
                await self._process_later(exchange, _TURN_OVER)
            else:
                await self._process_relieved(exchange, relief)
        finally:
            self._in_flight.leave(payer, count)

    def _relief(self, exchange: Exchange) -> asyncio.Future[None] | None:
        return self._pressure.relief(map(channel_of, exchange.elements), payers_of(exchange.session))

    def _wait(self, exchange: Exchange, pending: _Pending | _TurnOver) -> None:
        """Continue the exchange when it is time. As long as it waits for the store or its turn only, it needs no task."""
        if isinstance(pending, _TurnOver):
            go_on = partial(self._go_on, exchange, pending, None)
            self._turns.later(exchange.peer.remote, go_on, has_begun=True)
        elif isinstance(pending[2], Promise):
            pending[2].then(partial(self._go_on, exchange, pending))
        else:
            self._spawn(self._process_later(exchange, pending)).add_done_callback(lambda _: exchange.resolve(True))

    async def _process_relieved(self, exchange: Exchange, relief: Awaitable[None]) -> None:
        """Process it when its publishes may continue. It has waited as a whole, so that its messages keep their order, and what
        follows on a socket comes behind them."""
        try:
            await relief
        except StoreError as error:
            exchange.overload = not_stored(error)
        await self._process_later(exchange, _TURN_OVER)

    def _go_on(self, exchange: Exchange, pending: _Pending | _TurnOver, result: Any) -> None:
        """The store has answered, or the exchange has its turn."""
        further = self._resume(exchange, pending, result)
        while further is not None:
            awaited = None if isinstance(further, _TurnOver) else further[2]
            if not isinstance(awaited, Promise) or awaited.result is None:
                self._wait(exchange, further)
                return
            further = self._resume(exchange, further, awaited.result)
        exchange.resume()
        try:
            self._outbound.answer(exchange)
        finally:
            exchange.resolve(True)

    def _resume(self, exchange: Exchange, pending: _Pending | _TurnOver, result: Any) -> _Pending | _TurnOver | None:
        """Continue with what was waited for; what must be waited for next, None if all elements have their replies."""
        if isinstance(pending, _TurnOver):
            return self._process(exchange)
        message, steps, _ = pending
        try:
            awaited, reply = resume(steps, result)
        except Exception as error:  # noqa: BLE001 - it becomes the reply
            awaited, reply = None, refusal(message.fields, message, error)
        if awaited is not None:
            return message, steps, awaited
        assert reply is not None
        exchange.replies.append((reply, message))
        return self._process(exchange) if len(exchange.replies) < len(exchange.elements) else None

    def answer_seen(self, session: Session, peer: Peer, message: Message, *, passes: bool) -> None:
        """An extension has made of a plain connect one that needs a full answer."""
        fields = message.fields
        exchange = Exchange(peer, [fields])
        exchange.session = session
        try:
            reply = self._answer(exchange, session, message, passes=passes)
        except Exception as error:  # noqa: BLE001 - it becomes the reply
            reply = refusal(fields, message, error)
        assert isinstance(reply, dict)
        exchange.replies.append((reply, message))
        self._outbound.answer(exchange)

    async def _process_later(self, exchange: Exchange, pending: _Pending | _TurnOver | None) -> None:
        try:
            while pending is not None:
                if isinstance(pending, _TurnOver):
                    await self._turns.rest(exchange.peer.remote)
                    pending = self._process(exchange)
                    continue
                message, steps, awaited = pending
                try:
                    reply = await complete(steps, awaited)
                except Exception as error:  # noqa: BLE001 - it becomes the reply
                    reply = refusal(message.fields, message, error)
                exchange.replies.append((reply, message))
                pending = self._process(exchange)
        finally:
            exchange.resume()
        self._outbound.answer(exchange)

    def _process(self, exchange: Exchange) -> _Pending | _TurnOver | None:
        """Answer the elements that have no reply yet, up to one that has to be waited for, or to the end of the turn. While a
        message is being stored, and nothing else follows for it, those after it that ask for the same are started too, so that
        the store gets them together."""
        pending = self._take_ahead(exchange) if exchange.ahead else None
        if pending is not None:
            return pending
        answered, elements = exchange.replies, exchange.elements
        until = self._turns.portion() if elements[_SHORT:] else 0.0
        awaited: Awaitable[Any] | None = None
        began = leads = False
        for element in elements[len(answered) :] if answered else elements:
            if pending is not None and not (leads and isinstance(awaited, Promise) and _is_only_stored(element)):
                return pending
            if until and began and perf_counter() >= until:
                return _TURN_OVER if pending is None else pending
            began = True
            message: Message | None = None
            try:
                if type(element) is not dict:
                    raise Refused(BayeuxCode.CHANNEL_MISSING)
                message = Message.read(element)
                if until and message.channel.is_meta:
                    self._limits.count(exchange.session, exchange.peer)
                outcome = self._handle(exchange, message)
                if not isinstance(outcome, dict):
                    awaited, done = start(outcome)
                    if awaited is not None:
                        if pending is None:
                            pending, leads = (message, outcome, awaited), _is_only_stored(element)
                        else:
                            _put_ahead(exchange, message, outcome, awaited)
                        continue
                    assert done is not None
                    outcome = done
            except Exception as error:  # noqa: BLE001 - it becomes the reply
                outcome = refusal(element, message, error)
                if message is None:
                    self._count_refused(exchange)
            if pending is None:
                answered.append((outcome, message))
            else:
                _put_ahead(exchange, message, outcome, None)
        return pending

    def _take_ahead(self, exchange: Exchange) -> _Pending | None:
        """The next message that was started and has to be waited for; the replies before it are put to the others."""
        assert exchange.ahead is not None
        while exchange.ahead:
            message, outcome, awaited = exchange.ahead.popleft()
            if awaited is not None:
                assert message is not None
                return message, outcome, awaited
            exchange.replies.append((outcome, message))
        return None

    def _find_session(self, exchange: Exchange) -> None:
        """The first message's `clientId` chooses the session of the whole payload."""
        first = exchange.elements[0]
        try:
            session = self._sessions[first["clientId"]]
        except (KeyError, TypeError):  # no message, an unknown session, or something that is no id of one
            return
        if first.get("channel") in HANDSHAKE_NAMES:
            return
        peer = exchange.peer
        if not (self._may_push(peer, session) if peer.pushes else self._browsers.may_speak_for(session, peer)):
            return
        exchange.session = session
        self._times.saw(session, self._loop.time(), peer)

    def _may_push(self, peer: Peer, session: Session) -> bool:
        """Whether this socket may speak for the session."""
        spoken_for = peer.session
        if spoken_for is not session:
            if spoken_for is not None and spoken_for.is_live:
                return False
            if self._settings.websocket.require_handshake_per_connection:
                return False
            if not self._browsers.may_speak_for(session, peer):
                return False
            peer.session = session
        # From here on deliveries go to this socket, even before its next connect: a page may have been reloaded.
        if session.socket is not peer and not peer.is_gone:
            session.use_socket(peer)
        return True

    def _handle(self, exchange: Exchange, message: Message) -> _Outcome:
        channel = message.channel
        session = exchange.session
        if channel.name == HANDSHAKE:
            exchange.session = session = Session(self._host, self._runtime.cluster.marked(new_secret()), exchange.peer)
        elif session is not None:
            if not session.is_live:  # it was read again meanwhile: then it is another one by now
                session = exchange.session = self._sessions.get(session.id, session)
            if session.id != message.fields.get("clientId"):
                session = None  # only the first message's session speaks in this payload
        pipe = self._outbound.pipe
        passes = pipe.rcv_meta(session, message) if channel.is_meta else pipe.rcv(session, message)
        # A connect that comes last is answered as the failures that its request has reported leave the session. Otherwise a
        # later message may settle more: then `Outbound.answer` sees to it.
        if (
            channel.is_meta
            and session is not None
            and session in self._outbound.connects.reported
            and len(exchange.replies) + 1 == len(exchange.elements)
        ):
            self._dispatchers.conclude(session)
        return self._answer(exchange, session, message, passes=passes)

    def _answer(self, exchange: Exchange, session: Session | None, message: Message, *, passes: bool) -> _Outcome:
        """The reply, after the extensions have seen the message and said whether it passes."""
        channel = message.channel
        if not passes:
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        if session is None or not (session.is_live or session.state is _NEW):
            self._count_refused(exchange)
            return self._meta.unknown_session(exchange, message)
        if not channel.is_meta:
            if exchange.overload is not None and self._pressure.delays(channel.name, payers_of(session)):
                raise exchange.overload
            return self._publisher.publish(session, message)
        handler = self._meta.by_channel.get(channel.name)
        if handler is None:
            raise Refused(denied(DENIED_BY_POLICY, Denied.PUBLISH_CREATE))
        return handler(exchange, session, message)

    def _count_refused(self, exchange: Exchange) -> None:
        """A message is refused before any part could count it."""
        with suppress(Limited):
            self._limits.count(exchange.session, exchange.peer)


def _put_ahead(exchange: Exchange, message: Message | None, outcome: _Outcome, awaited: Awaitable[Any] | None) -> None:
    if exchange.ahead is None:
        exchange.ahead = deque()
    exchange.ahead.append((message, outcome, awaited))


def _is_only_stored(element: Any) -> bool:
    """Whether the element is a publish that is to be stored and does nothing else: it comes after what is being stored."""
    try:
        asked, channel = element["ext"]["publish"], element["channel"]
        if asked["persistent"] is not True:
            return False
    except (KeyError, TypeError):  # a field is missing, or one of them is no object
        return False
    return not (asked.get("destination") or asked.get("administrative") or str(channel).startswith("/meta/"))
