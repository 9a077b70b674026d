"""The session loop: handshake, connect, connect again, and what to do when that fails.

One task, owned by this class, runs the loop from `open` to `close`. It feeds
the table in `states.py`; listeners receive each transition.

    handshake ───ok──▶ subscribe what is subscribed locally ──▶ connect ⟲
        ▲                                                           │
        └── session lost (402, advice `handshake`) ─────────────────┤
            connection lost: back off, reopen, connect at once ─────┤
            advice `none`, refused for good: the end ◀──────────────┘
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from crewel.bayeux.message import AWAITS, Fields
from crewel.client.client_extension import Extension
from crewel.client.client_message import (
    CONNECT,
    DISCONNECT,
    HANDSHAKE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ext_part,
    is_successful,
    with_ext,
)
from crewel.client.config import Config
from crewel.client.connection import Connection, common_transports
from crewel.client.errors import (
    MISTAKES,
    NEVER_TAKEN,
    UNKNOWN_SESSION,
    AccessDenied,
    ClientError,
    DisconnectedError,
    HandshakeRefused,
    NameTaken,
    NotConnectedError,
    PayloadRefusedError,
    ProxyDeniedError,
    RefusedError,
    SocketClosedError,
    SubscribeRefused,
    TokenUnavailableError,
    TransportError,
    UntrustedCertificateError,
    UpgradeRefusedError,
    WrongAddressError,
    ended,
    handshake_refused,
    is_about_token,
    is_of_session,
    is_temporary,
    said,
)
from crewel.client.retry import Advice, Backoff, BackoffRule, NameWait, Reconnect, read_advice
from crewel.client.router import Interest, Router
from crewel.client.states import USABLE, Event, Life, State
from crewel.client.subscription import Progress
from crewel.client.token_source import Tokens
from crewel.errors import Fault

log = logging.getLogger("crewel.client")

_T = TypeVar("_T")
_ROOM_WAIT = 2.0
"""Seconds for which a connect is put off while the application is behind: well below any server's patience."""
_ASK_AGAIN = 1.0
"""For how many seconds a connect is held while the server has put off a subscribe or an unsubscribe."""
_TOGETHER = 100
"""How many are asked for in one payload, at most: servers bound its messages and its bytes."""


class Session:
    """One client's session, renewed as often as the server forgets it."""

    def __init__(self, config: Config, router: Router, extensions: tuple[Extension, ...]) -> None:
        self._config = config
        self._secrets = config.secrets
        self._router = router
        self.connection = Connection(config, router, extensions, self._on_reply, self._on_lost)
        self.life = Life(lambda: self.connection.client_id)
        self.subscriber = Subscriber(self.connection, router, self.life, config.network_delay)
        self._advice = Advice()
        self._backoff = Backoff(config.backoff or BackoffRule(), random.random)
        self._common = list(config.transports)
        self._is_disconnected = False
        self._tokens = Tokens(config.token, config.network_delay)
        self._is_renewing = False  # the session is there, and the next handshake shows another token for it
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, *, is_awaited: bool = True) -> None:
        """Start the loop and wait for the first session; not if it is not awaited: then the handshake is tried without limit.
        `life.begin` comes first.

        Raises:
            TransportError: no server within `open_timeout`.
            HandshakeRefused, NegotiationError: the server does not want this client.
        """
        if self._secrets is not None:
            self.connection.login.stored_secret = await self._secrets.load()
        if self.life.state is State.CLOSED:
            raise DisconnectedError("the client was closed")
        self.connection.start()
        patience = self._config.open_timeout if is_awaited else math.inf
        self._tasks.append(asyncio.create_task(self._run(patience), name="crewel-client-session"))
        if self._config.reports:
            reporting = self.connection.update.publish_statuses(self.send)
            self._tasks.append(asyncio.create_task(reporting, name="crewel-client-update"))
        if not is_awaited:
            return
        try:
            await self.life.settled()
        except BaseException:
            await self.close()
            raise
        if self.life.is_ending:
            await self.close()
            raise self.life.failure or DisconnectedError("the session ended")

    async def close(self, *, leaves: bool = False) -> None:
        """Tell the server, within `close_timeout`, and let go of everything. `leaves`: the session stays there, as with the
        option `leave`."""
        deadline = asyncio.get_running_loop().time() + self._config.close_timeout
        try:
            if self._is_renewing:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await self._renewed()
            if not self.life.is_ending:
                self.life.move(Event.CLOSING)
            if self.life.state is State.DISCONNECTING:
                await self._disconnect(leaves, deadline)
        finally:
            await self._release()

    async def _renewed(self) -> None:
        """Wait for the end of a renewal. No message is open at the server after its handshake: it takes their statuses when the
        answer to the first connect has brought them again."""
        while not (self.life.is_ending or self.life.state is State.CONNECTED):
            await self.life.moved.wait()

    async def _disconnect(self, leaves: bool, deadline: float) -> None:
        update = self.connection.update
        messages = update.final_statuses()
        if not (leaves or self._config.leave):
            messages.append({"channel": DISCONNECT})
        if not messages:
            return
        unanswered = messages.copy()
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.connection.reopen()  # it may be down at this moment, and statuses are worth an attempt
                for message in messages:  # together they may be larger than the server takes
                    with suppress(PayloadRefusedError):
                        update.report_refused(await self.connection.exchange([message], self._config.close_timeout))
                        unanswered.remove(message)
        update.report_unanswered(unanswered)

    async def _release(self) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await self._tokens.stop()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            if self.life.state is State.DISCONNECTING:
                self.life.move(Event.DONE)
            self._router.end(None)
            self.connection.exchanges.fail(DisconnectedError("the client was closed"))
            await self.connection.stop()

    async def request(self, messages: list[Fields]) -> list[Fields]:
        """Send messages in one payload as soon as there is a session; their replies."""
        await self.usable()
        return await self.send(messages)

    async def usable(self) -> None:
        """Wait for a session and its connection. Raises NotConnectedError, DisconnectedError."""
        await self.life.ready(self._config.network_delay)
        if self.connection.is_lost:
            self._on_lost(TransportError("the socket is closed"))
            await self.life.ready(self._config.network_delay)

    async def send(self, messages: list[Fields]) -> list[Fields]:
        """Send messages in one payload now; their replies. Raises TransportError if there is no connection."""
        self.life.check_loop()
        return await self.connection.exchange(messages, self._config.network_delay)

    async def _run(self, patience: float) -> None:
        try:
            while not self.life.is_ending:
                await self._establish(asyncio.get_running_loop().time() + patience)
                await self._stay_connected()
                # Only `open` waits for a session, the first one, and raises the failure; later ones are tried without limit.
                patience = math.inf
        except ClientError as error:
            await self._end(error)
        except Exception as fault:
            # Requests and subscriptions wait on the loop: they must fail when it stops, and say why.
            log.exception("the session loop failed")
            await self._end(DisconnectedError(f"the session loop failed: {said(fault)}"))

    async def _end(self, error: ClientError) -> None:
        if self.life.is_ending:
            return
        self.life.failure = error
        self.life.move(Event.ENDED, error)
        self._router.end(error)
        self.connection.exchanges.fail(error)
        await self.connection.close_transport()

    async def _establish(self, deadline: float) -> None:
        """Try until there is a session. Raises what makes trying again useless, and the last failure at `deadline`."""
        if not self._is_renewing:
            self._router.forget_session()
        names = NameWait(self._config.name_timeout)
        while True:
            try:
                return await self._begin(await self._try_transports())
            except NameTaken as error:
                self.life.failure = error
                self._router.lose_session()
                if self.connection.login.forget_stored_secret():
                    log.warning("%s: the stored secret is no longer valid: trying without it", error)
                    continue
                delay = names.delay(error, asyncio.get_running_loop().time())
                if delay is None:
                    raise
                log.warning("%s: its last client is gone, and its name is free in %.1f s: waiting for it", error, delay)
            except (TransportError, TokenUnavailableError, HandshakeRefused) as error:
                self.life.failure = error
                if isinstance(error, AccessDenied) and self._tokens.refused():
                    log.info("%s: asking for another token", error)
                    continue
                delay = self._advice.interval + self._backoff.failed()
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0 or self._is_final(error, is_first=deadline < math.inf):
                    raise
                delay = min(delay, left)  # the last attempt is at the deadline, and not a pause before it
                log.info("no session yet, next attempt in %.1f s: %s", delay, error)
            await asyncio.sleep(delay)

    def _is_final(self, error: ClientError, *, is_first: bool) -> bool:
        """Whether it is useless to try again."""
        if isinstance(error, HandshakeRefused) and self._advice.reconnect is Reconnect.NONE:
            # What gives the tokens may be late itself: who had one that was good waits for the next.
            return is_first or not (isinstance(error, AccessDenied) and error.is_expired and self._tokens.may_change)
        # A first attempt must not hide a mistake in the set-up behind its patience; later ones outlive a renewal.
        return is_first and _is_mistake(error)

    async def _try_transports(self) -> Fields:
        """The handshake's reply over the first transport that brings one. Raises the last one's TransportError."""
        self.connection.login.token = await self._tokens.take()
        self._advice = Advice()
        failure = TransportError("no transport")
        for name in self._config.transports:
            try:
                await self.connection.use(name)
                replies = await self.connection.exchange([self._handshake()], self._config.network_delay)
            except TransportError as error:
                log.info("no handshake over %s: %s", name, error)
                failure = error
            else:
                return replies[0]
        raise failure

    def _handshake(self) -> Fields:
        return {
            **copy.deepcopy(self._config.handshake or {}),
            "channel": HANDSHAKE,
            "version": "1.0",
            "minimumVersion": "1.0",
            "supportedConnectionTypes": list(self._config.transports),
            "advice": {"timeout": int(self._advice.timeout * 1000), "interval": 0},
        }

    async def _begin(self, reply: Fields) -> None:
        if not is_successful(reply):
            raise handshake_refused(reply)
        client_id = reply.get("clientId")
        if not isinstance(client_id, str):
            raise TransportError("the handshake reply has no clientId")
        self._common = common_transports(self._config.transports, reply.get("supportedConnectionTypes"))
        if self.connection.transport not in self._common:
            await self.connection.use(self._common[0])
        self.connection.client_id = client_id
        self._is_disconnected = self._is_renewing = False
        # On disk before the session is used: a crash from here on loses nothing that only the secret can fetch.
        await self._keep_secret()
        self.life.move(Event.HANDSHAKEN)

    async def _keep_secret(self) -> None:
        secret = self.connection.login.resume
        if self._secrets is not None and secret is not None:
            try:
                await self._secrets.save(secret)
            except ClientError as error:
                log.warning("%s: the next process of this session has to wait for it", error)
            except (Exception, SystemExit) as error:  # a store of the application must not end the session
                log.warning("resume_store failed: the next process of this session has to wait for it", exc_info=error)

    async def _stay_connected(self) -> None:
        """Connect again and again; returns when the session is lost or being closed."""
        answered = asyncio.get_running_loop().time()
        await asyncio.sleep(self._advice.interval)
        # The first connect, and each after a failure, asks for an answer at once: it says whether the session lives.
        hold = False
        while not self.life.is_ending:
            try:
                reply = await self._connect(hold)
            except TransportError as error:
                hold = False
                if not await self._survives(error, answered):
                    return
                continue
            hold, answered = is_successful(reply), asyncio.get_running_loop().time()
            if self.life.is_ending or not await self._obey(reply):
                return
            if self._tokens.is_renewed and self.connection.may_move and self.life.state is State.CONNECTED:
                await self._renew()
                return

    async def _renew(self) -> None:
        """Prepare the handshake with the next token: requests wait for it, and those under way have their replies first."""
        self._is_renewing = True
        self.life.move(Event.RENEWING)
        await self.connection.exchanges.replied(self._config.network_delay)

    async def _connect(self, hold: bool) -> Fields:
        await self.connection.reopen()
        await self.connection.opening_batch()
        await self.subscriber.catch_up()
        await self.connection.wait_for_room(_ROOM_WAIT)
        await self.connection.update.handled(_ROOM_WAIT)
        if self._is_disconnected:
            raise DisconnectedError("the server ended the session")
        # The socket may have closed since the last reply, and been opened again: requests wait until this connect is answered.
        hold = hold and self.life.state is State.CONNECTED
        # Before the next token is shown, the server has to know what has arrived, and is to send nothing more.
        busy = self.connection.busy if not self._tokens.is_renewed or self.connection.may_move else True
        if busy == AWAITS and not hold:
            busy = False  # the last reply may be lost, and what was new with it: it is to come again
        hold = hold and busy is not True
        message: Fields = {"channel": CONNECT}
        held = self._advice.timeout if hold else 0.0
        patience = self._tokens.renew()
        if self._router.unconfirmed() or self._router.left:
            patience = min(patience, _ASK_AGAIN)
        if not hold or patience < held:
            held = min(held, patience)
            message["advice"] = {"timeout": math.ceil(held * 1000)}
        if busy:
            with_ext(message, "busy", busy)
        [reply] = await self.connection.exchange([message], held + self._config.network_delay)
        return reply

    async def _survives(self, error: TransportError, answered: float) -> bool:
        """Prepare the next connect after a failed one; False if the session cannot live any more."""
        self.life.failure = error
        if self.life.is_ending:
            return False
        lifetime = self._advice.session_lifetime
        if lifetime is not None and asyncio.get_running_loop().time() - answered > lifetime:
            self._lose_session(error)
            return False
        self.life.move(Event.CONNECTION_LOST, error)
        await asyncio.sleep(self._advice.interval + self._backoff.failed())
        # A proxy that answers the upgrade will do so again; other failures pass.
        if isinstance(error, UpgradeRefusedError):
            await self._fall_back()
        return True

    async def _fall_back(self) -> None:
        """Take the next transport of the session: something on the way lets no sockets pass any more."""
        current = self.connection.transport
        later = self._common[self._common.index(current) + 1 :] if current in self._common else []
        if later:
            with suppress(TransportError):  # the next connect opens it again, and reports the failure
                await self.connection.use(later[0])

    async def _obey(self, reply: Fields) -> bool:
        """Do what an answered connect asks for; False if the session is lost."""
        step = self._next_step(reply)
        if step is Reconnect.NONE or self._is_disconnected:
            raise ended(_refusal(reply))
        if step is Reconnect.HANDSHAKE:
            if is_about_token(_refusal(reply)):
                self._is_renewing = True
                self._tokens.refused()
            never_connected = self.life.state is State.CONNECTING
            self._lose_session(_refusal(reply))
            # A server that forgets each new session at once must not be asked in a tight loop.
            await asyncio.sleep(self._advice.interval + (self._backoff.failed() if never_connected else 0.0))
            return False
        if not is_successful(reply):
            self.life.move(Event.CONNECTION_LOST, _refusal(reply))
            await asyncio.sleep(self._advice.interval + self._backoff.failed())
            return True
        self._backoff.succeeded()
        self.life.failure = None
        self.life.move(Event.ANSWERED)
        await asyncio.sleep(self._advice.interval)
        return True

    def _next_step(self, reply: Fields) -> Reconnect:
        if is_successful(reply) or read_advice(reply.get("advice")) is not None:
            return self._advice.reconnect
        return Reconnect.HANDSHAKE if RefusedError(reply).code in UNKNOWN_SESSION else Reconnect.RETRY

    def _lose_session(self, reason: Exception | None) -> None:
        self.connection.exchanges.fail(TransportError("the session was lost"))
        self.life.move(Event.SESSION_LOST, reason)

    def _on_lost(self, error: TransportError) -> None:
        """Requests wait from now on: the connect, which is on its way or comes next, says whether the session lives."""
        if self.life.state in USABLE:
            self.life.failure = error
            self.life.move(Event.CONNECTION_LOST, error)

    def _on_reply(self, reply: Fields) -> None:
        """Take the advice of any reply, and notice that the server ends the session."""
        advice = read_advice(reply.get("advice"))
        if advice is not None:
            self._advice = advice
        if reply.get("channel") == DISCONNECT and "id" not in reply and is_successful(reply):
            # The held connect is answered next, and the requests that are on their way may be; only then it has ended.
            self._is_disconnected = True


def _is_put_off(reply: Fields) -> bool:
    """Whether the same may succeed later."""
    refusal = _refusal(reply)
    return refusal is not None and (is_of_session(refusal) or is_temporary(refusal))


def _refusal(reply: Fields) -> RefusedError | None:
    return None if is_successful(reply) else RefusedError(reply)


class Subscriber:
    """Subscribes to each channel once a session, however many local subscriptions it has."""

    def __init__(self, connection: Connection, router: Router, life: Life, network_delay: float) -> None:
        self._connection = connection
        self._router = router
        self._life = life
        self._network_delay = network_delay
        self._together = _TOGETHER

    async def subscribe(self, interest: Interest) -> None:
        """Tell the server of a channel, unless it knows.

        Raises:
            SubscribeRefused: it does not want it; the channel's local subscriptions have ended.
        """
        while not interest.confirmed and await self._is_needed(interest):
            if interest.refusal is not None:
                raise interest.refusal  # of another call for the same channel
            if interest.asked is not None:
                await interest.asked.wait()  # no longer than the request that is under way
                continue
            moved = self._life.moved
            for refusal in await self._ask([interest]):
                raise refusal
            if not interest.confirmed:
                # 402: the session is gone, as the loop is about to learn from its next connect.
                await self._next_move(moved)

    async def _is_needed(self, interest: Interest) -> bool:
        """Wait for a session; whether the channel still needs a subscribe. A session subscribes to all channels before its
        first connect."""
        await self._life.ready(self._network_delay)
        return not interest.confirmed

    async def unsubscribe(self, channels: list[str]) -> None:
        """Tell the server in one payload that these channels are not wanted any more, but for those of which it knows and those
        that are wanted again. What may not have arrived is sent again before the next connect. Raises TransportError,
        MessageDroppedError."""
        channels = [each for each in channels if self._router.take_left(each)]
        if not channels:
            return
        # Not one message with all of them: the server would stop at the first one that it refuses.
        messages: list[Fields] = [{"channel": UNSUBSCRIBE, "subscription": each} for each in channels]
        try:
            replies = await self._connection.exchange(messages, self._network_delay)
        except BaseException as error:
            if len(channels) > 1 or not isinstance(error, NEVER_TAKEN):
                self._router.leave_again(channels)
            raise
        self._router.leave_again(
            channel for channel, reply in zip(channels, replies, strict=True) if _is_put_off(reply)
        )

    async def catch_up(self) -> None:
        """Tell the server of every channel that it does not know yet, and of those that are not wanted any more. Those it
        refuses end."""
        await self._in_parts(self._router.left, self.unsubscribe, lambda channel, error: None)
        interests = self._router.unconfirmed()
        await self._in_parts(interests, self._ask_unconfirmed, self._router.refuse)
        if interests and not self._router.unconfirmed():
            # The server has taken all, so the next session may ask for more: by then, its limit may be another one.
            self._together = min(2 * self._together, _TOGETHER)

    async def _in_parts(
        self, items: list[_T], ask: Callable[[list[_T]], Awaitable[object]], give_up: Callable[[_T, ClientError], None]
    ) -> None:
        """Ask for these in as many payloads as the server takes. A single one that cannot be sent, or that it does not take, is
        given up: the session must not fail by it."""
        parts = [items[first : first + self._together] for first in range(0, len(items), self._together)]
        while parts:
            part = parts.pop(0)
            middle = len(part) // 2
            try:
                await ask(part)
            except SocketClosedError as error:
                # Over HTTP this is an answer; here, the next connection asks for fewer.
                if error.is_about_a_payload or error.code == Fault.TOO_MANY.close_code:
                    self._together = max(1, middle)
                raise
            except NEVER_TAKEN as error:
                if middle:
                    parts[:0] = part[:middle], part[middle:]
                else:
                    give_up(part[0], error)

    async def _ask_unconfirmed(self, interests: list[Interest]) -> None:
        # While others were asked for, some may have been unsubscribed, or another call may ask for them.
        if interests := [each for each in interests if self._router.is_unconfirmed(each)]:
            await self._ask(interests)

    async def _next_move(self, moved: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._network_delay):
                await moved.wait()
        except TimeoutError:
            raise NotConnectedError("the server does not know the session") from self._life.failure

    async def _ask(self, interests: list[Interest]) -> list[SubscribeRefused]:
        """Tell the server of these channels in one payload; the refusals."""
        client_id = self._connection.client_id
        messages = [_subscribe_message(interest) for interest in interests]
        with _being_asked(interests):
            replies = await self._connection.exchange(messages, self._network_delay)
        refusals: list[SubscribeRefused] = []
        for interest, message, reply in zip(interests, messages, replies, strict=True):
            if is_successful(reply):
                interest.was_confirmed = True
                # The reply may be about a session that was lost while it was on its way.
                interest.confirmed = client_id == self._connection.client_id
                if not interest.has_begun:
                    _take_position(interest, message, reply)
                interest.has_begun = interest.confirmed
            elif not is_of_session(RefusedError(reply)):
                refusals.append(SubscribeRefused(reply))
                if interest.was_confirmed and is_temporary(refusals[-1]):
                    log.info("%s: it is asked for again", refusals[-1])  # as after a restart, with all clients at once
                else:
                    self._router.refuse(interest, refusals[-1])
        return refusals


@contextmanager
def _being_asked(interests: list[Interest]) -> Iterator[None]:
    settled = asyncio.Event()
    for interest in interests:
        interest.asked, interest.may_exist = settled, True
    try:
        yield
    finally:
        settled.set()
        for interest in interests:
            interest.asked = None


def _subscribe_message(interest: Interest) -> Fields:
    message: Fields = {"channel": SUBSCRIBE, "subscription": interest.channel}
    if interest.ext is not None:
        message["ext"] = copy.deepcopy(interest.ext)
        if interest.has_begun and _asked(message):
            # The session has the subscription: nothing of a history comes again.
            asked = {name: value for name, value in _asked(message).items() if name not in ("history", "since")}
            message["ext"]["subscribe"] = asked | {"initialUpdate": False}
        elif interest.progress and "since" in _asked(message):
            message["ext"]["subscribe"]["since"] = interest.progress.position
    return message


def _is_mistake(error: ClientError) -> bool:
    """Whether the address or what the client trusts is wrong, as far as can be seen: waiting does not fix it."""
    is_wrong_upgrade = isinstance(error, UpgradeRefusedError) and error.status in MISTAKES
    return is_wrong_upgrade or isinstance(error, UntrustedCertificateError | WrongAddressError | ProxyDeniedError)


def _asked(message: Fields) -> Fields:
    return ext_part(message, "subscribe")


def _take_position(interest: Interest, message: Fields, reply: Fields) -> None:
    """Note where the subscription begins. What is recovered is still to come, and counts from where it was asked for."""
    given = ext_part(reply, "subscribe")
    recovered = given.get("recovered")
    interest.recovered = recovered if isinstance(recovered, bool) else None
    answered_position = given.get("position")
    position = {
        channel: {name: text for name, text in place.items() if isinstance(text, str)}
        for channel, place in (answered_position.items() if isinstance(answered_position, dict) else ())
        if isinstance(place, dict)
    }
    since = _asked(message).get("since")
    if interest.recovered and isinstance(since, dict):
        position |= {channel: position[channel] | place for channel, place in since.items() if channel in position}
    interest.progress = Progress()
    interest.progress.begin(position)
    for subscription in interest.subscriptions:
        subscription.confirmed(interest.recovered, position)
