"""Salesforce's Bayeux, as an extension of the server: what it checks before it handles a message, and how it replies.

The server keeps sessions, cookies, queues and held connects. This extension refuses what Salesforce refuses, writes the replies
as Salesforce writes them, and delivers the events after a replay id. A context variable carries the HTTP exchange between
`front` and this extension.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from crewel.bayeux.message import Fields, Message
from crewel.broker.broker import Broker
from crewel.broker.session import Event as SessionEvent
from crewel.broker.session import Session, SessionPart, Verdict
from crewel.delivery.entry import Entry
from crewel.extension import Extension
from crewel.mock import shapes
from crewel.mock.org import CONCURRENT, LIFETIME_S, Org, Record
from crewel.mock.salesforce_events import Event, matches, selects, topic_of
from crewel.mock.script import OF_TRANSPORT, PAGES

COOKIE: Final = "sfdc-stream"
_FILTER: Final = "~filter~"
_VERSION: Final = re.compile(r"/cometd/(\d+\.\d)(?:/.*)?")


@dataclass(slots=True)
class Exchange:
    """What this extension needs of one HTTP request, and what `front` must do to the response."""

    path: str
    authorization: str
    user: str
    client: str
    """User and user agent."""
    cookies: dict[str, str]
    sets_cookie: bool = False
    """Whether the response sets the cookies."""
    before: list[Fields] = field(default_factory=list)
    """Messages that come before all others in the response."""
    events: list[tuple[str, int]] = field(default_factory=list)
    """Channel and id of the events in the response."""
    transport_fault: str = ""


EXCHANGE: ContextVar[Exchange] = ContextVar("EXCHANGE")


class Delivery(SessionPart):
    """Records which events are sent to a session."""

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.stream = ""
        """The value of the session's cookie."""
        self.waiting: list[Entry] = []
        """Events for later: the response to the first connect has none."""
        self.has_connected = False
        self.exchange: Exchange | None = None
        """The request of the connect that is being answered, or held."""
        self.ids: dict[int, tuple[str, int]] = {}
        """Channel and id of what is queued, by its entry."""

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """Note the events of this response."""
        for entry in entries:
            known = self.ids.pop(id(entry), None)
            if known is not None and self.exchange is not None:
                self.exchange.events.append(known)
        return entries


class SalesforceExtension(Extension):
    """The hooks."""

    name = "salesforce"

    def __init__(self, org: Org) -> None:
        self.org = org
        self._verdicts: dict[int, Fields] = {}
        """The replies of messages that are refused, by the message."""
        self._records: dict[int, Record] = {}

    def installed(self, broker: Broker) -> None:
        """Remember the broker, which has the sessions."""
        self.broker = broker

    # What comes in

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """Return True to handle the message as usual; otherwise `send_meta` sends the refusal."""
        exchange = EXCHANGE.get()
        operation = message.channel.name.rpartition("/")[2]
        record = self.org.record(operation, message.fields, exchange.client)
        self._records[id(message)] = record
        part = part_of(session)
        if part is not None and operation == "connect":
            part.exchange = exchange
        reply = self._scripted(session, message, operation, exchange, record) or self._refusal(
            session, message, operation, exchange
        )
        if reply is not None:
            record.error = reply["error"]
            self._verdicts[id(message)] = reply
            return False
        if session is not None and operation == "handshake":
            session.add_part(Delivery(self.org.user_id(exchange.user)))
        if operation in ("subscribe", "unsubscribe"):
            _rename(message, inner)
        return True

    def rcv(self, session: Session | None, message: Message) -> bool:
        """Refuse a publish: events are published over REST only."""
        self.org.record("publish", message.fields, EXCHANGE.get().client).error = shapes.CREATE_DENIED
        return False

    def send(self, session: Session | None, fields: Fields) -> bool:
        """The reply to a publish."""
        if fields.get("successful") is False:
            refused = shapes.refused(None, fields, shapes.CREATE_DENIED)
            fields.clear()
            fields.update(refused)
        return True

    def _scripted(
        self, session: Session | None, message: Message, operation: str, exchange: Exchange, record: Record
    ) -> Fields | None:
        """The reply that the script, or a fault that was added, gives instead of the usual one."""
        fault = self.org.script.fault_of(operation) or next(
            (name for name in self.org.faults if _concerns(name, operation)), None
        )
        if fault is None:
            return None
        record.fault = fault
        if fault in OF_TRANSPORT:
            exchange.transport_fault = fault
            # A proxy answers with a page of its own, at once: the message does not reach the server.
            return shapes.refused(None, message.fields, fault) if fault in PAGES else None
        return self.fault_reply(fault, session, message, operation, exchange)

    def fault_reply(
        self, fault: str, session: Session | None, message: Message, operation: str, exchange: Exchange
    ) -> Fields:
        """The reply to this message with this fault."""
        client_id, fields = str(message.fields.get("clientId", "")), message.fields
        match fault:
            case "unknown client":
                self._forget(session)
                exchange.sets_cookie = True
                return shapes.unknown_client(message.channel.name, message.id)
            case "unknown client, disconnect":
                self._forget(session)
                exchange.before.append(shapes.DISCONNECT)
                return shapes.ended(client_id, message.id, shapes.UNKNOWN_CLIENT)
            case "authentication invalid" | "handshake denied":
                return self._unauthorized(message, operation, exchange, shapes.AUTHENTICATION_INVALID)
            case "authentication missing":
                return self._unauthorized(message, operation, exchange, shapes.AUTHENTICATION_MISSING)
            case "invalid replay id":
                return shapes.refused(client_id, fields, shapes.invalid_replay_id(_asked_id(message)))
            case "replay id not found":
                channel = str(fields.get("subscription"))
                return shapes.refused(client_id, fields, shapes.replay_id_not_found(channel, _replay_map(message)))
            case "server busy":
                return shapes.refused(client_id, fields, shapes.SUBSCRIBE_DENIED, shapes.SERVER_BUSY)
            case "daily limit":
                return shapes.daily_limit(client_id, message.id)
            case "concurrent limit":
                return shapes.handshake_denied(message.id, shapes.CONCURRENT_LIMIT)
        return shapes.refused(client_id, fields, shapes.unknown_channel(fields.get("subscription")))

    def _refusal(self, session: Session | None, message: Message, operation: str, exchange: Exchange) -> Fields | None:
        """The reply that refuses the message; None if the message is right."""
        version = _VERSION.fullmatch(exchange.path)
        client_id = message.fields.get("clientId")
        if version is None or float(version[1]) < shapes.OLDEST_VERSION:
            error = shapes.VERSION_MISSING if version is None else shapes.VERSION_OLD
            return shapes.refused(None, message.fields, error)
        if self.org.user_of(exchange.authorization) is None:
            missing = not exchange.authorization.strip()
            error = shapes.AUTHENTICATION_MISSING if missing else shapes.AUTHENTICATION_INVALID
            return self._unauthorized(message, operation, exchange, error)
        if operation == "handshake":
            return self._refused_handshake(message)
        known = self.broker.sessions.by_id.get(client_id) if isinstance(client_id, str) else None
        if known is not None:
            refusal = self._cookies(known, message, exchange)
            if refusal is not None:
                return refusal
        if session is not None and self.broker.loop.time() - session.added_at >= LIFETIME_S:
            return self.fault_reply("unknown client", session, message, operation, exchange)
        if operation == "connect":
            return self._refused_connect(message, str(client_id))
        if operation == "subscribe" and session is not None:
            return self._refused_subscribe(message, str(client_id), self.org.user_id(exchange.user))
        return None

    def _refused_handshake(self, message: Message) -> Fields | None:
        if len(self.broker.sessions.by_id) >= CONCURRENT[self.org.edition]:
            return shapes.handshake_denied(message.id, shapes.CONCURRENT_LIMIT)
        kinds = message.fields.get("supportedConnectionTypes")
        if isinstance(kinds, list) and kinds and "long-polling" not in kinds:
            return shapes.refused(None, message.fields, shapes.invalid_connection_type(kinds[0]))
        return None

    def _refused_connect(self, message: Message, client_id: str) -> Fields | None:
        kind = message.fields.get("connectionType", "long-polling")
        if kind != "long-polling":
            return shapes.refused(client_id, message.fields, shapes.invalid_connection_type(kind))
        return shapes.daily_limit(client_id, message.id) if self.org.is_over_daily_limit() else None

    def _refused_subscribe(self, message: Message, client_id: str, user_id: str) -> Fields | None:
        for name in _names(message):
            error = self._wrong_channel(name) or self._wrong_replay(name, message, user_id)
            if error:
                return shapes.refused(client_id, message.fields, error)
        return None if _names(message) else shapes.refused(client_id, message.fields, shapes.NO_CHANNEL)

    def _wrong_channel(self, name: object) -> str:
        if not isinstance(name, str) or not name:
            return shapes.NO_CHANNEL
        if not name.startswith("/"):
            return shapes.NO_SLASH
        if not self.org.has_channel(name):
            return shapes.unknown_channel(name)
        missing = self.org.missing_fields(name)
        return shapes.unknown_fields(missing) if missing else ""

    def _wrong_replay(self, name: str, message: Message, user_id: str) -> str:
        ext = message.ext
        if "replay" not in ext:
            return ""
        asked = _replay_map(message)
        key = topic_of(name)  # EMP connector and others leave out the filter
        if not asked or asked.get(key) is None:
            return shapes.replay_id_not_found(key, asked)
        number = _number(asked[key])
        if number is None or self.org.log.after(key, number, self.org.now(), user_id) is None:
            return shapes.invalid_replay_id(asked[key])
        return ""

    def _unauthorized(self, message: Message, operation: str, exchange: Exchange, error: str) -> Fields:
        if operation == "handshake":
            if error == shapes.AUTHENTICATION_MISSING:
                return shapes.refused(None, message.fields, error) | {"advice": {"reconnect": "none"}}
            return shapes.handshake_denied(message.id, error)
        client_id = str(message.fields.get("clientId", ""))
        if operation == "connect":
            exchange.before.append(shapes.DISCONNECT)
            return shapes.ended(client_id, message.id, error)
        return shapes.refused(client_id, message.fields, error)

    def _cookies(self, session: Session, message: Message, exchange: Exchange) -> Fields | None:
        """Each cookie must come back as it was set. A quoted value is the same value."""
        part = part_of(session)
        browser = self.broker.settings.bayeux.cookie_name
        for name, value in ((browser, session.browser), (COOKIE, part.stream if part is not None else None)):
            sent = exchange.cookies.get(name)
            if sent is None and value:
                return shapes.refused(session.id, message.fields, shapes.cookie_missing(session.id, name))
            if value and sent != value:
                return shapes.unknown_client(message.channel.name, message.id)
        return None

    # What goes out

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Write the reply as Salesforce does."""
        verdict = self._verdicts.pop(id(message), None)
        record = self._records.pop(id(message), None)
        exchange = EXCHANGE.get(None)
        operation = message.channel.name.rpartition("/")[2]
        part = part_of(session)
        if operation in ("subscribe", "unsubscribe"):
            _rename(message, outer)
        if verdict is None:
            verdict = self._usual(session, part, reply, message, operation)
        if record is not None and not verdict["successful"]:
            record.error = verdict.get("error", "")
        if operation == "handshake" and verdict["successful"] and part is not None and exchange is not None:
            part.stream = exchange.cookies.get(COOKIE) or _cookie_value(verdict["clientId"])
            exchange.cookies[COOKIE] = part.stream
            exchange.sets_cookie = True
        reply.clear()
        reply.update(verdict)
        return True

    def _usual(
        self, session: Session | None, part: Delivery | None, reply: Fields, message: Message, operation: str
    ) -> Fields:
        if not reply["successful"]:
            return self._failed(session, part, reply, message)
        match operation:
            case "handshake":
                return shapes.handshaken(reply["clientId"], message.id)
            case "connect":
                return self._connected(session, part, reply, message)
            case "disconnect":
                return shapes.disconnected(str(message.fields.get("clientId")), message.id)
        exchange = EXCHANGE.get()
        if operation == "subscribe" and session is not None:
            self._replay(session, message, exchange)
        elif operation == "unsubscribe" and session is not None:
            for name in _names(message):
                self.org.unsubscribes(session, exchange.client, str(name))
        client_id = str(message.fields.get("clientId"))
        return shapes.subscribed(client_id, message.channel.name, message.fields.get("subscription"), message.id)

    def _failed(self, session: Session | None, part: Delivery | None, reply: Fields, message: Message) -> Fields:
        error = str(reply.get("error", ""))
        if error.startswith("402"):
            exchange = EXCHANGE.get(None)
            if exchange is not None:
                exchange.sets_cookie = True
            return shapes.unknown_client(message.channel.name, message.id)
        if error in (shapes.AUTHENTICATION_INVALID, shapes.UNKNOWN_CLIENT) and session is not None:
            if part is not None and part.exchange is not None:
                part.exchange.before.append(shapes.DISCONNECT)
            return shapes.ended(session.id, message.id, error)
        return shapes.refused(str(message.fields.get("clientId") or "") or None, message.fields, error)

    def _connected(self, session: Session | None, part: Delivery | None, reply: Fields, message: Message) -> Fields:
        if reply.get("advice", {}).get("reconnect") == "none":
            return {"clientId": str(message.fields.get("clientId")), **reply}
        is_first = part is not None and not part.has_connected
        if part is not None and session is not None and is_first:
            part.has_connected = True
            waiting, part.waiting = part.waiting, []
            for entry in waiting:
                self.broker.mailboxes.outbound.enqueue(session, entry)
        return shapes.connected(str(message.fields.get("clientId")), message.id, is_first=is_first)

    # Events

    def _replay(self, session: Session, message: Message, exchange: Exchange) -> None:
        """Send what a subscription asks for of the past, before anything new."""
        client, user_id = exchange.client, self.org.user_id(exchange.user)
        asked = _replay_map(message) or {}
        for name in _names(message):
            number = _number(asked.get(topic_of(name), -1))
            events = self.org.log.after(str(name), -1 if number is None else number, self.org.now(), user_id) or []
            self.org.subscribes(session, client, user_id, str(name), -1 if number is None else number)
            for event in events:
                self._enqueue(session, event, Entry(event.sent_on(str(name))))

    def publish(self, channel: str, data: Any, age: float = 0.0, **more: Any) -> Event:
        """Publish a new event, as `Org.publish`, and send it to all its subscribers. An older one only waits for a replay."""
        event = self.org.publish(channel, data, age, **more)
        if age < 1:
            self._deliver(event)
        return event

    def _deliver(self, event: Event) -> None:
        entries: dict[str, Entry] = {}
        for session in list(self.broker.sessions.by_id.values()):
            part = part_of(session)
            user_id = part.user_id if part is not None else ""
            sent = [event.sent_on(name) for name in map(outer, session.subscriptions) if selects(name, event, user_id)]
            for fields in {each["channel"]: each for each in sent}.values():
                self._enqueue(session, event, entries.setdefault(fields["channel"], Entry(fields)))

    def online(self, channel: str) -> set[str]:
        """The ids of the users that are subscribed to a channel now."""
        parts = {part_of(each): each.subscriptions for each in self.broker.sessions.by_id.values()}
        return {
            part.user_id
            for part, names in parts.items()
            if part and any(matches(outer(name), channel) for name in names)
        }

    def _enqueue(self, session: Session, event: Event, entry: Entry) -> None:
        part = part_of(session)
        if part is None:
            return
        part.ids[id(entry)] = (entry.fields["channel"], event.replay_id)
        if part.has_connected:
            self.broker.mailboxes.outbound.enqueue(session, entry)
        else:
            part.waiting.append(entry)

    # What a test does to sessions

    def _forget(self, session: Session | None) -> None:
        if session is not None and session.is_live:
            self.broker.sessions.table.remove(session, SessionEvent.SILENCE)

    def forget_all(self) -> int:
        """Forget all sessions, as when an instance is refreshed; returns how many. Held connects are answered."""
        sessions = list(self.broker.sessions.by_id.values())
        for session in sessions:
            self._forget(session)
        return len(sessions)

    def end_unauthorized(self) -> None:
        """Tokens were revoked: end the sessions whose token is not valid any more, also those with a held connect."""
        for session in list(self.broker.sessions.by_id.values()):
            part = part_of(session)
            exchange = part.exchange if part is not None else None
            if exchange is None or self.org.user_of(exchange.authorization) is not None:
                continue
            session.refuse(Verdict(shapes.AUTHENTICATION_INVALID, {"reconnect": "none", "interval": 0}))
            self.broker.mailboxes.connects.release(session, self.broker.loop.time())
            self._forget(session)


def part_of(session: Session | None) -> Delivery | None:
    """The part of this extension in a session; None if there is none."""
    if session is None:
        return None
    return next((part for part in session.parts if isinstance(part, Delivery)), None)


_CONCERNS: Final = {
    "handshake denied": ("handshake",),
    "concurrent limit": ("handshake",),
    "invalid replay id": ("subscribe",),
    "replay id not found": ("subscribe",),
    "server busy": ("subscribe",),
    "unknown channel": ("subscribe",),
    "daily limit": ("connect",),
    "unknown client": ("connect", "subscribe", "unsubscribe"),
    "unknown client, disconnect": ("connect",),
}


def _concerns(fault: str, operation: str) -> bool:
    return operation in _CONCERNS.get(fault, (operation,))


def _names(message: Message) -> list[Any]:
    value = message.fields.get("subscription")
    return value if isinstance(value, list) else [] if value is None else [value]


def _replay_map(message: Message) -> dict[str, Any] | None:
    asked = message.ext.get("replay")
    return asked if isinstance(asked, dict) else None


def _asked_id(message: Message) -> object:
    names = _names(message)
    return (_replay_map(message) or {}).get(topic_of(str(names[0])) if names else "", -1)


def inner(name: str) -> str:
    """The name of a subscription as the server keeps it: a filter has characters that no channel may have."""
    topic, mark, expression = name.partition("?")
    return f"{topic}{_FILTER}{expression.encode().hex()}" if mark else name


def outer(name: str) -> str:
    """The reverse of `inner`."""
    topic, mark, expression = name.partition(_FILTER)
    return f"{topic}?{bytes.fromhex(expression).decode()}" if mark else name


def _rename(message: Message, change: Callable[[str], str]) -> None:
    value = message.fields.get("subscription")
    if isinstance(value, list):
        message.fields["subscription"] = [change(each) if isinstance(each, str) else each for each in value]
    elif isinstance(value, str):
        message.fields["subscription"] = change(value)


def _number(value: object) -> int | None:
    """A replay id; clients send it as a text, too."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _cookie_value(client_id: str) -> str:
    # With the characters that clients which encode values once more would change.
    return f"!{client_id[:20]}+/=="
