"""The way of a connect: held until something comes or its time has ended, and answered then.

A connect goes one of two ways. Most are those of a client that waits: they say nothing that has to be looked at, and
`hold_bare` takes them. They are recognised by their fields (`hold_plain`), or on a socket by their bytes (`known_connect`). All
others go through `begin_connect` and `hold_begun`, between which the extensions and the login have their say.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from random import randint
from typing import Any, Final

import orjson

from crewel.bayeux import replies
from crewel.bayeux.message import Fields, Message
from crewel.bayeux.replies import Reply
from crewel.broker.exchange import (
    CONNECT_CHANNEL,
    CONNECTED,
    CONNECTED_WITH,
    Exchange,
    Held,
    Peer,
    encode_reply,
)
from crewel.broker.mailboxes.backlog_loader import BacklogLoader
from crewel.broker.mailboxes.browsers import Browsers
from crewel.broker.mailboxes.departures import Departures
from crewel.broker.mailboxes.mailbox_listeners import OutboundListener
from crewel.broker.mailboxes.offers import LEAVES
from crewel.broker.mailboxes.session_times import SessionTimes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, State, Verdict

REPEATED_S: Final = 1.0
"""How soon after a connect that was answered the same one counts as sent twice, and not as the next of a client that numbers
nothing."""
_BARE: Final = 4
"""The fields of a bare connect: `channel`, `clientId`, `connectionType` and `id`."""
_CONNECTED: Final = State.CONNECTED
"""Asked for with each connect: a member of an enumeration is a slow look-up."""
_CONNECT: Final = CONNECT_CHANNEL.name


class Connects:
    """The held connects of one server."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: dict[str, Session],
        times: SessionTimes,
        departures: Departures,
        loader: BacklogLoader,
        listener: OutboundListener,
    ) -> None:
        self._loop = runtime.loop
        self._settings = runtime.settings.bayeux
        self._metrics = runtime.metrics
        self.browsers = Browsers(runtime.settings)
        self._times = times
        self._sessions = sessions
        self._take = departures.take
        self._pipe, self._timers = departures.pipe, departures.timers
        self._load_if_waiting = loader.load_if_waiting
        self._listener = listener
        self.held = 0
        """How many there are."""
        self.reported: set[Session] = set()
        """The sessions whose clients have reported failures, in a request that is not read to its end: `conclude` is next."""
        self._holds = True
        self.longest_pause_ms = 0
        """While the server ends and another one will have its sessions soon: how long clients are asked to wait at most."""

    def hold_plain(self, peer: Peer, fields: Any) -> bool:
        """Answer or hold what a waiting client sends again and again. That is a connect that comes alone and says nothing
        unusual, for a session without news; or the repeat of its last connect. False: nothing has been done, the general way
        takes it."""
        try:
            if fields["channel"] != _CONNECT:
                return False
            session, message_id = self._sessions[fields["clientId"]], fields["id"]
        except (KeyError, TypeError):  # no message, an unknown session, or something that is no id of one
            return False
        if type(message_id) is not str or ("ext" in fields and type(fields["ext"]) is not dict):
            return False
        is_repeated = message_id in (session.connect_id, session.connect_before)
        if is_repeated and self.repeat(session, peer, message_id, fields.get("ext")):
            return True
        if "advice" in fields or not (bare_id := message_id.encode()).isalnum():  # of bytes: it is ASCII, too
            return False
        return self.hold_bare(session, peer, bare_id, fields)

    def hold_bare(self, session: Session, peer: Peer, bare_id: bytes, fields: Fields | None = None) -> bool:
        """Hold a connect without advice. No fields: it is known to say that all has arrived. False: nothing has been done."""
        # The session is the socket's or the browser's, has connected before on the same transport, and nothing may leave.
        mailbox, pushes = session.mailbox, peer.pushes
        if not (
            session.state is _CONNECTED
            and mailbox.news != LEAVES
            and session.held is None
            and (
                session.socket is peer
                if pushes
                else session.socket is None
                and session.browser == peer.browser is not None
                and (not self.browsers.has_limit or self.browsers.admits(session))
            )
            and session.advised_on == (transport := peer.transport)
            and (self._holds and not (mailbox.is_absent or mailbox.evicted))
        ):
            return False
        if not pushes and session.browser is not peer.browser and session.browser is not None:
            peer.recognise(session.browser)
        session.peer = peer
        session.connect_before = session.connect_id
        session.connect_id = None if pushes or fields is None else fields["id"]
        session.answered = session.transient = None
        session.last_seen = now = self._loop.time()
        part = session.plain
        request: Message | bytes = bare_id
        if fields is None:
            assert part is not None
            part.took_all(session)
        elif self._pipe.sees_bare_connects or not (
            fields.get("connectionType") == transport
            and (
                ((count := len(fields)) == _BARE and not session.parts)
                or (count == _BARE + 1 and part is not None and "ext" in fields and part.takes(session, fields["ext"]))
            )
        ):
            request = Message(fields, CONNECT_CHANNEL, fields["id"])
            if not self._passes(session, peer, request):
                return True
        self._metrics.connects += 1
        deadline = now + (self._settings.timeout_ms if (own := session.timeout_ms) is None else own) / 1000
        self.hold(session, Held(peer, request, None, deadline))
        if mailbox.evicted:
            self._load_if_waiting(session)  # a status that it carried has put them back
        if deadline <= now:
            self.release(session, now)
        return True

    def _passes(self, session: Session, peer: Peer, message: Message) -> bool:
        """Whether the connect can still be held once the extensions have seen it. False: it has been answered."""
        passes = self._pipe.rcv_meta(session, message)
        if session in self.reported:
            self._listener.conclude(session)
        if (
            passes
            and session.is_live
            and not (
                session.mailbox.news == LEAVES
                or session.hold_delay
                or session.advised_on is None
                or "advice" in message.fields
            )
        ):
            return True
        self._times.saw(session, session.last_seen, peer)
        self._listener.answer_seen(session, peer, message, passes=passes)
        return False

    def note_connect(self, exchange: Exchange, session: Session, message_id: str | None) -> None:
        """A connect came that goes the general way."""
        self._metrics.connects += 1
        if exchange.is_overtaken(session, message_id):
            return
        session.connect_before = session.connect_id
        session.connect_id = None if exchange.peer.pushes else message_id
        session.answered = None

    def begin_connect(self, exchange: Exchange, session: Session, message: Message) -> Reply:
        """The connect is accepted: it takes the place of one that is held and not newer. Returns its reply as it stands."""
        peer = exchange.peer
        if exchange.is_overtaken(session, message.id):
            exchange.connect = reply = replies.ok(message)
            return reply
        if session.held is not None:
            self.supersede(session)
        session.connecting = peer
        if not peer.pushes:
            session.socket = None  # it has moved: its messages go with this transport from here on
        has_advice = "advice" in message.fields and message.has_advice
        session.transient = (message.advised_ms("timeout"), message.advised_ms("interval")) if has_advice else None
        if has_advice or session.advised_on != peer.transport:
            exchange.advise = True
            session.advised_on = peer.transport
        exchange.is_busy = session.acknowledges and message.says_busy
        exchange.connect = reply = replies.ok(message)
        return reply

    def hold_begun(self, exchange: Exchange, session: Session) -> bool:
        """Hold the connect, True; or leave it to be answered at once, with the advice that it needs."""
        reply, peer = exchange.connect, exchange.peer
        assert reply is not None
        delay = session.hold_delay
        if delay:
            session.hold_delay = 0.0
        may_wait = len(exchange.elements) == 1 and self._holds and not (exchange.is_busy or peer.is_gone)
        if exchange.has_waited and (peer.is_half_closed or self._sessions.get(session.id) is not session):
            # Its client may have gone meanwhile; or all was read again: what comes goes to another one, here or elsewhere.
            may_wait = False
        if may_wait and (delay or session.mailbox.news != LEAVES):
            if not peer.pushes and not self.browsers.admits(session):
                self._times.advise_multiple_clients(session, reply, with_timeout=exchange.advise)
                return False
            timeout = self._times.hold_ms(session) / 1000 if exchange.was_connected else 0.0
            if timeout < delay:
                timeout = delay
            if timeout > 0:
                message = exchange.replies[0][1]
                assert message is not None
                now = session.last_seen  # in this very turn: a connect waits for nothing
                not_before = now + delay if delay else 0.0
                if session.held is not None:  # of two connects that both waited for the store, the later one counts
                    self.supersede(session)
                self.hold(session, Held(peer, message, reply, now + timeout, not_before, exchange.advise))
                session.connecting = None
                return True
        if self.longest_pause_ms:
            self.ask_to_pause(session, self.longest_pause_ms)
            exchange.advise = True
        if exchange.advise:
            reply["advice"] = self._times.advice(session)
        return False

    def ask_to_pause(self, session: Session, longest_ms: int) -> None:
        """Let the reply to this connect ask the client to wait a little, not all for the same time. A connect that came at once
        would fail with its connection, and a stock client then waits for a second or more."""
        session.transient = (None, randint(longest_ms // 2, longest_ms))  # noqa: S311 - it hides nothing
        session.advised_on = None

    def hold(self, session: Session, held: Held) -> None:
        """Keep this connect until something is queued for the session, or until its deadline."""
        session.held = held
        session.expires_at = inf
        self.held += 1
        peer = held.peer
        if not peer.pushes:
            peer.session = session
            if self.browsers.has_limit:
                self.browsers.hold(session)
        if held.deadline < session.alarm or held.not_before:
            self._timers.at(session, held.not_before or held.deadline)

    def repeat(self, session: Session, peer: Peer, message_id: str, ext: Any) -> bool:
        """Answer the last connect of this session, which came once more: something on the way sends requests twice, or a
        browser did not get the answer. It is no newer connect that would replace the first one, and nothing in it is
        acknowledged or reported a second time. While the first is held both get the answer. Else this one is answered at once:
        as the first one where the session acknowledges. Otherwise, or if a newer connect has overtaken it, the answer has no
        message, for the client may have the first one. It names the batch that the client acknowledges. False: it is a connect
        like any other."""
        if peer.pushes or session.browser != peer.browser or peer.browser is None or session.verdict is not None:
            return False
        if session.answered is not None and ext and ext.get("ack") == session.mailbox.expected():
            return False  # it acknowledges the reply to the last one: a client that gives each connect the same id
        if message_id != session.connect_id:
            session.connect_before = None
            peer.send([_empty_reply(session, message_id, ext)])
            return True
        held = session.held
        if held is not None:
            if held.twin is not None or held.peer.pushes:
                return False
            held.twin, peer.session = peer, session
            return True
        if self._loop.time() - session.last_seen > REPEATED_S:
            return False
        if session.connecting is not None and session.connecting.is_gone:
            return False  # the first one waits for something, and will have no answer
        session.connect_id = None  # once: a client that numbers nothing must not be answered again and again
        answered, session.answered = session.answered, None
        peer.send([_empty_reply(session, message_id, ext)] if answered is None else answered)
        return True

    def _let_go(self, session: Session, held: Held) -> None:
        session.held = None
        self.held -= 1
        peer = held.peer
        if held.twin is not None:
            held.twin.session = None
        if not peer.pushes:
            peer.session = None
            if session.peer is peer:
                session.peer = None
            if self.browsers.has_limit:
                self.browsers.release(session)

    def release(self, session: Session, now: float, *, is_bare: bool = False) -> None:
        """Answer the held connect with what is queued, or without a message."""
        held = session.held
        if held is None:
            return
        peer, request = held.peer, held.request
        if held.twin is not None:
            self._let_go(session, held)
        else:  # the same without a call
            session.held = None
            self.held -= 1
            if not peer.pushes:
                peer.session = None
                if session.peer is peer:
                    session.peer = None
                if self.browsers.has_limit:
                    self.browsers.release(session)
        parts = [] if is_bare else self._take(session)
        is_plain = type(request) is bytes and session.is_live and session.advised_on is not None
        if is_plain and not session.parts:
            parts.append(CONNECTED % request)
        elif is_plain and (part := session.plain) is not None:
            ext = part.answer(session)
            parts.append(CONNECTED_WITH % (request, ext) if ext else CONNECTED % request)
        else:
            message = held.message(session) if isinstance(request, bytes) else request
            reply = replies.ok(message) if held.reply is None else held.reply
            if held.advise or session.advised_on is None or not session.is_live:
                self._times.advise_released(session, reply, peer.transport)
            if self._pipe.send_meta(session, reply, message):
                parts.append(encode_reply(reply, self._metrics))
        if session.is_live:
            if session.transient is None and session.interval_ms is None and session.grace_ms is None:
                # As for most: `arm_time_out`, without a call.
                session.expires_at = now + self._times.usual_rest
            else:
                self._times.arm_time_out(session, now)
        if parts or not peer.pushes:
            peer.send(parts)
        if self.longest_pause_ms:
            peer.end_well()
        if held.twin is not None:
            held.twin.send(parts)
        elif session.acknowledges:
            session.answered = parts

    def dismiss(self, session: Session, verdict: Verdict) -> None:
        """Answer the connect that the session's client holds with this, and without a message: another has the session."""
        session.verdict, session.advised_on = verdict, None
        self.release(session, self._loop.time(), is_bare=True)
        session.verdict = None

    def supersede(self, session: Session) -> None:
        """End the held connect for a newer one: it gets no messages and its place among the browser's is free."""
        held = session.held
        if held is not None:
            self._let_go(session, held)
            held.peer.supersede()
            if held.twin is not None:
                held.twin.supersede()

    def drain(self, sessions: Iterable[Session], longest_pause_ms: int = 0) -> None:
        """Answer every held connect now: the server is going down. With a pause, another one will have its sessions by then."""
        self._holds, self.longest_pause_ms = False, longest_pause_ms
        for session in list(sessions):
            if longest_pause_ms and session.held is not None:
                self.ask_to_pause(session, longest_pause_ms)
            self.release(session, self._loop.time())
        self._timers.close()

    def give_back(self, session: Session) -> list[tuple[Peer, list[Any]]]:
        """Hold the session's connect no more and answer nothing: another node has the session. Returns the requests, or the
        socket, that brought it, each with its elements."""
        held = session.held
        assert held is not None
        fields = dict(held.message(session).fields)
        if isinstance(held.request, bytes) and session.plain is not None and (said := session.plain.expects(session)):
            fields["ext"] = orjson.loads(b"{%b}" % said)
        self._let_go(session, held)
        session.connect_id = None  # it has no answer: once more, it is no copy
        session.leave_socket()
        self._times.arm_time_out(session, self._loop.time())
        return [(peer, [fields]) for peer in (held.peer, held.twin) if peer is not None]

    def vanished(self, peer: Peer) -> None:
        """The connection of this request is gone: whatever comes waits for the next connect."""
        if peer.relay is not None:
            peer.relay.gone()
            return
        session = peer.session
        held = None if session is None else session.held
        if session is None or held is None:
            return
        if held.twin is not None and peer in (held.peer, held.twin):
            held.peer, held.twin = held.twin if held.peer is peer else held.peer, None
            peer.session = None
        elif held.peer is peer:
            self._let_go(session, held)
            session.connect_id = None  # it has no answer: once more, it is no copy
            self._times.arm_time_out(session, self._loop.time())

    def half_closed(self, peer: Peer, longest_pause_ms: int = 0) -> None:
        """The client of this request sends no more. A legal half-close and a vanished client look the same from here, so
        the connect is answered now: the one gets its answer, the other does not stay held. With a pause, it is the node
        with its connection that is about to end."""
        if peer.relay is not None:
            peer.relay.half_closed()
            return
        session = peer.session
        held = None if session is None else session.held
        if session is not None and held is not None and peer in (held.peer, held.twin):
            if longest_pause_ms:
                self.ask_to_pause(session, longest_pause_ms)
            self.release(session, self._loop.time())

    def socket_closed(self, socket: Peer) -> None:
        """The socket is gone. An anonymous session stays, for a reload or another transport, as long as its connect would have
        been held and the grace after it. A named one lives for longer anyway. Its client counts as gone after the grace alone,
        so that the next process of its name need not wait for a connect that is gone."""
        if socket.relay is not None:
            socket.relay.gone()
        session = socket.session
        if session is None:
            return
        if session.socket is socket:
            session.socket = None
        held = session.held
        if held is not None and held.peer is socket:
            self._let_go(session, held)
            now = self._loop.time()
            self._times.arm_time_out(session, max(held.deadline, now) if session.grace_ms is None else now)


def _empty_reply(session: Session, message_id: str, ext: Any) -> bytes:
    """The reply to a copy of a connect, without a message. A client that acknowledges finds in each reply a batch: here the one
    that it has acknowledged itself, for it may not have got a later one."""
    batch = ext.get("ack") if ext and session.acknowledges else None
    bare_id = message_id.encode()
    return CONNECTED_WITH % (bare_id, b'"ack":%d' % batch) if type(batch) is int else CONNECTED % bare_id
