"""One connection to the stand-in, which sees bytes; and the comparison of bytes with a sample of the documentation."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any
from urllib.parse import urlencode, urlsplit

from crewel.mock import Salesforce

ORDERS = "/event/Order__e"


class Wire:
    """One connection with the cookies of a browser, which sees bytes."""

    def __init__(self, org: Salesforce) -> None:
        self.org = org
        self.path = "/cometd/68.0"
        self.cookies: dict[str, str] = {}
        self.headers = {"Authorization": f"Bearer {org.token}", "Content-Type": "application/json"}
        self.status = self.connects = 0
        self.set_cookies: list[str] = []
        self.client_id = ""

    def send(self, body: bytes, path: str = "", method: str = "POST", **headers: str) -> bytes:
        address = urlsplit(self.org.url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        try:
            return self._exchange(connection, method, path, body, {**self.headers, **cookies, **headers})
        finally:
            connection.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> bytes:
        connection.request(method, path or self.path, body, headers)
        response = connection.getresponse()
        self.status = response.status
        self.set_cookies = response.headers.get_all("Set-Cookie") or []
        for cookie in self.set_cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return response.read()

    def ask(self, channel: str, **fields: Any) -> bytes:
        message = {"channel": f"/meta/{channel}", **fields}
        if self.client_id:
            message["clientId"] = self.client_id
        return self.send(json.dumps([message]).encode())

    def handshake(self) -> bytes:
        self.client_id = ""
        body = self.ask("handshake", id="305", version="1.0", supportedConnectionTypes=["long-polling"])
        self.client_id = json.loads(body)[0].get("clientId", "")
        return body

    def connect(self, message_id: str = "") -> bytes:
        self.connects += 1
        message_id = message_id or f"c{self.connects}"
        return self.ask("connect", id=message_id, connectionType="long-polling")

    def subscribe(self, channel: Any, **ext: Any) -> bytes:
        return self.ask("subscribe", id="7", subscription=channel, **({"ext": ext} if ext else {}))

    def form(self, path: str, **fields: str) -> bytes:
        """Send a form without a token."""
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": ""}
        return self.send(urlencode(fields).encode(), path, **headers)


def same(got: bytes, sample: str) -> None:
    """Compare bytes. `…` in the sample stands for text that the server chooses, a number of ten digits or more for any such."""
    pattern = re.sub(r"\b\d{10,}\b", "NUMBER", sample)
    pattern = re.escape(pattern).replace("…", r'[^"<>{}\[\],]+').replace("NUMBER", r"\d{10,}")
    assert re.fullmatch(pattern, got.decode()), f"\n{got.decode()}\n{sample}"
