"""Frames for a fuzz: valid messages of every kind, mutated, in bodies and requests that may be broken. Seeded: one seed makes
the same frames again."""

from __future__ import annotations

import json
import random
from typing import Any

CHANNELS = ("/f/a", "/f/b", "/f/c/d", "/h/a", "/h/b", "/h/c")  # those below /h/ keep a history
_PATTERNS = (*CHANNELS, "/f/*", "/f/**", "/h/*", "/h/**")
_NAMES = ("client/fuzz/1", "client/fuzz", "client/joe/-1", "client/reader/1", "fuzz/2")
_FIELDS = (
    "channel",
    "id",
    "clientId",
    "data",
    "ext",
    "advice",
    "subscription",
    "connectionType",
    "version",
    "successful",
    "error",
    "ack",
    "update",
    "publish",
    "session",
    "subscribe",
    "timesync",
    "replay",
    "priority",
    "lifeTime",
    "history",
    "filter",
    "destination",
    "persistent",
    "clientProperties",
    "key",
    "to",
    "interval",
    "maxEntries",
    "burst",
    "queue",
    "name",
    "token",
    "resume",
    "group",
    "since",
    "newestOnly",
    "errorCode",
    "state",
    "constructor",
    "__proto__",
    "\u0000",
    "é",
)
_HOLDS = ("timeout", "interval")
_FILTERS = (
    "data.n > `1`",
    "length(data) > `1`",
    "max(data.all) < `3`",
    "contains(['a'], data.kind)",
    "data[*].a | [0]",
    "data.n >",
    "sum(data.all) > `0` && avg(data.all) < `9`",
    "data == data",
    "!data.*",
    "to_number(data.n) == `1`",
)
_CODES = (
    "user.update.deadMessage",
    "user.update.illegal",
    "communication.noConnection",
    "user.security.authentication",
    "odd",
    "",
)
_COMMANDS = (
    "__cmd:client/fuzz/1/?dispatcherActive=false",
    "__cmd:/node/?sessions",
    "__cmd:sysprop/?x",
    "client/",
    "__cmd:" + "/" * 50,
)


class Frames:
    """Makes frames for one client, whose `clientId` is `client_id`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.client_id = "none"
        self._number = 0

    def body(self) -> bytes:
        """What one request or frame carries: mostly messages, some of them mutated, sometimes anything."""
        rng = self.rng
        fate = rng.random()
        if fate < 0.03:
            return json.dumps(self.value(4)).encode()
        count = 1 if rng.random() < 0.8 else rng.randrange(2, 12)
        messages: Any = [self.message() for _ in range(count)]
        if fate < 0.75:
            for _ in range(rng.choice((1, 1, 2, 4))):
                messages = self._mutated(messages)
        if rng.random() < 0.05 and isinstance(messages, list) and messages:
            messages = messages[0]
        text = json.dumps(_without_long_holds(messages))
        if rng.random() < 0.03:
            text = text.replace('"', '"\\ud800', 1) if rng.random() < 0.5 else text.replace(": ", ": NaN, ", 1)
        body = text.encode()
        return self._damaged(body) if rng.random() < 0.1 else body

    def request(self, body: bytes, cookie: str) -> bytes:
        """A whole request that HTTP can read, with this body."""
        rng = self.rng
        path = rng.choice(("/cometd", "/cometd", "/cometd/connect", "/cometd?x=1"))
        kinds = (
            "application/json",
            "application/json;charset=UTF-8",
            "text/plain",
            "a/b;charset=latin-1",
            "a/b;charset=x",
        )
        (kind,) = rng.choices(kinds, (10, 4, 4, 2, 0.5))
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}"]
        if cookie:
            lines.append(f"Cookie: BAYEUX_BROWSER={cookie}")
        if rng.random() < 0.1:
            lines.append("Transfer-Encoding: chunked")
            middle = rng.randrange(len(body) + 1)
            pieces = [piece for piece in (body[:middle], body[middle:]) if piece]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        else:
            lines.append(f"Content-Length: {len(body)}")
        if rng.random() < 0.02:
            lines.append(
                rng.choice(("Content-Encoding: gzip", "Origin: http://evil.example", "Host: evil.example", "X-Odd: é"))
            )
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def broken_request(self) -> bytes:
        """Something that is hardly HTTP."""
        rng = self.rng
        body = self.body()
        method = rng.choice(("POST", "GET", "OPTIONS", "PUT", "HEAD", "post", "P\u00d6ST", "CONNECT", ""))
        path = rng.choice(
            (
                "/cometd",
                "/",
                "/metrics",
                "/admin/api/sessions",
                "/api/publish",
                "/static/chat/",
                "/nowhere",
                "*",
                "//[",
                "/%ff",
                "/cometd?jsonp=f&message=" + "%7B" * rng.randrange(9),
                "/" + "a" * rng.choice((10, 300, 9000)),
            )
        )
        version = rng.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/", ""))
        names = (
            "Content-Length",
            "Transfer-Encoding",
            "Host",
            "Connection",
            "Upgrade",
            "Sec-WebSocket-Key",
            "Sec-WebSocket-Version",
            "Range",
            "Sec-WebSocket-Extensions",
            "If-Modified-Since",
            "Authorization",
            "Cookie",
            "Origin",
            "Expect",
            "Content-Encoding",
            "\u00e9",
        )
        values = (
            "0",
            "-1",
            "9" * 40,
            "9" * 5000,
            str(len(body)),
            "chunked",
            "gzip",
            "localhost",
            "evil.example",
            "close",
            "keep-alive",
            "websocket",
            "Upgrade",
            "13",
            "bytes=0-",
            "\u00ff",
            "",
            " ",
            "Bearer x",
            "100-continue",
            "A" * 24,
            "permessage-deflate; server_max_window_bits=9",
        )
        headers = [
            f"{rng.choice(names)}{rng.choice((':', ': ', ' : ', ''))}{rng.choice(values)}"
            for _ in range(rng.randrange(6))
        ]
        end = rng.choice(("\r\n", "\r\n", "\r\n", "\n", "\r"))
        text = end.join([f"{method} {path} {version}", "Host: localhost", *headers, "", ""]).encode("latin-1")
        return self._damaged(text + body) if rng.random() < 0.5 else text + body

    def message(self) -> Any:
        """One message as a client may send it."""
        rng = self.rng
        self._number += 1
        made = rng.choices(
            (
                self._publish,
                self._subscribe,
                self._connect,
                self._service,
                self._unsubscribe,
                self._handshake,
                self._leave,
            ),
            (50, 15, 12, 15, 4, 3.5, 0.5),
        )[0]()
        return {"id": str(self._number), "clientId": self.client_id, **made}

    def value(self, depth: int) -> Any:
        """Any value that JSON can say."""
        rng = self.rng
        kind = rng.randrange(12 if depth else 9)
        if kind >= 9:
            count = rng.randrange(5)
            if kind == 9:
                return {rng.choice(_FIELDS): self.value(depth - 1) for _ in range(count)}
            return [self.value(depth - 1) for _ in range(count)]
        return rng.choice(
            (
                None,
                True,
                False,
                0,
                -1,
                1,
                2**31,
                2**53,
                2**63,
                -(2**63),
                2**64,
                10**400,
                1e308,
                -0.0,
                0.5,
                "",
                "0",
                "x" * rng.choice((1, 65, 5000)),
                "/**",
                "/meta/connect",
                "\u0000",
                "\u2028",
                "client/fuzz/1",
                rng.choice(_FILTERS),
                rng.choice(_PATTERNS),
                rng.choice(_CODES),
                self.client_id,
            )
        )

    def _publish(self) -> dict[str, Any]:
        rng = self.rng
        message: dict[str, Any] = {
            "channel": rng.choice(CHANNELS),
            "data": {"n": self._number, "kind": rng.choice("abc"), "all": [1, 2, 3]},
        }
        if rng.random() < 0.6:
            qos = {
                "persistent": rng.random() < 0.3,
                "priority": rng.randrange(10),
                "lifeTime": rng.choice((-1, 0, 50, 1000)),
                "key": str(self._number),
                "forceUpdate": True,
                "clientProperties": {"a": 1},
                "history": {"maxEntries": rng.randrange(20)},
                "replyTo": "/ret/1",
                "destination": [{"to": rng.choice(_NAMES), "forceQueuing": rng.random() < 0.2}],
                "readonly": False,
                "subscribable": True,
            }
            message["ext"] = {"publish": {name: qos[name] for name in rng.sample(sorted(qos), rng.randrange(4))}}
        return message

    def _subscribe(self) -> dict[str, Any]:
        rng = self.rng
        message: dict[str, Any] = {"channel": "/meta/subscribe", "subscription": rng.choice(_PATTERNS)}
        if rng.random() < 0.2:
            message["subscription"] = rng.sample(_PATTERNS, 3)
        if rng.random() < 0.5:
            qos = {
                "filter": rng.choice(_FILTERS),
                "history": {"numEntries": rng.randrange(-1, 9), "newestFirst": True},
                "local": False,
                "newestOnly": True,
                "since": {"/h/a": {"epoch": "x", "id": "1"}},
                "group": "g",
                "updateOneway": True,
                "multiSubscribe": False,
            }
            message["ext"] = {"subscribe": {name: qos[name] for name in rng.sample(sorted(qos), rng.randrange(1, 3))}}
        return message

    def _unsubscribe(self) -> dict[str, Any]:
        return {"channel": "/meta/unsubscribe", "subscription": self.rng.choice(_PATTERNS)}

    def _connect(self) -> dict[str, Any]:
        rng = self.rng
        message: dict[str, Any] = {
            "channel": "/meta/connect",
            "connectionType": rng.choice(("long-polling", "websocket")),
        }
        if rng.random() < 0.7:
            message["advice"] = {"timeout": rng.choice((0, 5))}
        if rng.random() < 0.7:
            status = {
                "id": str(rng.randrange(1000)),
                "errorCode": rng.choice(_CODES),
                "message": "m",
                "state": rng.choice(("OK", "WORKING", "x")),
            }
            message["ext"] = {"ack": rng.randrange(9), "update": [status], "timesync": {"tc": 1, "l": 2, "o": 3}}
        return message

    def _handshake(self) -> dict[str, Any]:
        rng = self.rng
        session = {
            "name": rng.choice(_NAMES),
            "update": True,
            "settle": rng.choice(("batch", "message")),
            "ackWait": rng.choice((-1, 10, 1000)),
            "maxOpen": rng.choice((0, 0, 1, 3)),
            "ptp": True,
            "timeout": 2000,
            "maxSessions": 3,
            "dispatcher": {"retries": rng.randrange(-1, 3), "delay": 10},
            "clearSessions": rng.random() < 0.1,
            "queue": {
                "maxEntries": rng.randrange(1, 50),
                "onOverflow": rng.choice(("deadMessage", "dropOldest", "disconnect")),
            },
        }
        chosen = {name: session[name] for name in rng.sample(sorted(session), rng.randrange(5))}
        return {
            "channel": "/meta/handshake",
            "version": "1.0",
            "supportedConnectionTypes": ["long-polling", "websocket"],
            "ext": {"ack": True, "session": chosen, "replay": True},
        }

    def _leave(self) -> dict[str, Any]:
        return {"channel": "/meta/disconnect"}

    def _service(self) -> dict[str, Any]:
        rng = self.rng
        name = rng.choice(
            (
                "/service/get",
                "/service/update",
                "/service/__cmd",
                "/service/erase",
                "/service/cancelScheduled",
                "/service/nowhere",
                "/service/members",
            )
        )
        data = {
            "/service/get": {"channel": rng.choice(CHANNELS), "numEntries": rng.randrange(5)},
            "/service/erase": {"channel": "/h/c"},
            "/service/cancelScheduled": rng.choice((rng.randrange(10**16), str(rng.randrange(10**16)), "x")),
            "/service/update": [{"id": str(rng.randrange(1000)), "errorCode": rng.choice(_CODES)}],
            "/service/__cmd": rng.choice(_COMMANDS),
        }.get(name, {})
        return {"channel": name, "data": data}

    def _mutated(self, value: Any) -> Any:
        """The value with one place of it changed."""
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.85:
            name = rng.choice(list(value))
            fate = rng.random()
            if fate < 0.15:
                return {key: item for key, item in value.items() if key != name}
            if fate < 0.25:
                return {**value, rng.choice(_FIELDS): self.value(2)}
            return {**value, name: self._mutated(value[name])}
        if isinstance(value, list) and value and rng.random() < 0.9:
            place = rng.randrange(len(value))
            return [*value[:place], self._mutated(value[place]), *value[place + 1 :]]
        return self.value(3)

    def _damaged(self, data: bytes) -> bytes:
        rng = self.rng
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            if not changed:
                break
            place, fate = rng.randrange(len(changed)), rng.randrange(3)
            if fate == 0:
                changed[place] = rng.randrange(256)
            elif fate == 1:
                del changed[place : place + rng.randrange(1, 9)]
            else:
                changed[place:place] = rng.randbytes(rng.randrange(1, 5))
        return bytes(changed).replace(b'"timeout"', b'"t"')  # a hold of a day would be granted


def _without_long_holds(value: Any) -> Any:
    """The same, with no time-out that keeps a request for long: that would be granted, and the answer come tomorrow."""
    if isinstance(value, dict):
        return {
            key: 5 if key in ("timeout", "interval") and item not in (0, None) else _without_long_holds(item)
            for key, item in value.items()
        }
    return [_without_long_holds(item) for item in value] if isinstance(value, list) else value
