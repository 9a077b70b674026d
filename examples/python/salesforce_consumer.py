"""Consumes one channel of Salesforce's streaming API with `requests`, as a script does, but without its usual mistakes.

It replays after a lost session, starts at the oldest event if its position has expired, and logs in again when its token ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import requests

OLDEST, NEW = -2, -1
PAUSE_S = 0.05


class Consumer:
    """`Consumer(login_url, "/event/Order__e", handle).run()` calls `handle(payload)` for each event until `stop`."""

    def __init__(self, login_url: str, channel: str, handle: Callable[[Any], None]) -> None:
        self.login_url, self.channel, self.handle = login_url, channel, handle
        self.position = NEW
        self._http = requests.Session()  # keeps the cookies
        self._url = ""
        self._ends = threading.Event()

    def run(self) -> None:
        """Consume until `stop`."""
        while not self._ends.is_set():
            try:
                self._session()
            except (requests.RequestException, ValueError):
                self._url = ""  # the org may have moved: log in again
            time.sleep(PAUSE_S)

    def stop(self) -> None:
        """End with the connect that is under way."""
        self._ends.set()

    def _session(self) -> None:
        if not self._url:
            self._log_in()
        (reply,) = self._post("/meta/handshake", version="1.0", supportedConnectionTypes=["long-polling"])
        if not reply["successful"]:
            self._url = ""
            return
        client_id = reply["clientId"]
        if not self._subscribe(client_id):
            return
        while not self._ends.is_set():
            *events, reply = self._post("/meta/connect", clientId=client_id, connectionType="long-polling")
            for event in events:
                if event["channel"] == self.channel:
                    self.handle(event["data"]["payload"])
                    self.position = event["data"]["event"]["replayId"]
            if not reply["successful"]:
                if reply["error"].startswith("401"):
                    self._url = ""
                return

    def _subscribe(self, client_id: str) -> bool:
        for _ in range(2):
            ext = {"replay": {self.channel: self.position}}
            (reply,) = self._post("/meta/subscribe", clientId=client_id, subscription=self.channel, ext=ext)
            if reply["successful"] or not reply["error"].startswith("400::The replayId"):
                break
            self.position = OLDEST  # what is older has expired
        return bool(reply["successful"])

    def _log_in(self) -> None:
        form = {"grant_type": "password", "username": "user@example.com", "password": "secret"}
        answer = self._http.post(f"{self.login_url}/services/oauth2/token", data=form, timeout=30).json()
        self._http.headers["Authorization"] = f"Bearer {answer['access_token']}"
        self._url = f"{answer['instance_url']}/cometd/60.0"

    def _post(self, channel: str, **fields: Any) -> list[dict[str, Any]]:
        response = self._http.post(self._url, json=[{"channel": channel, **fields}], timeout=120)
        response.raise_for_status()
        return list(response.json())
