"""A client of Salesforce's streaming API as a script has it, over `urllib`; and every bad habit of a scenario as a switch."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Any

from crewel.mock import Salesforce

Reply = dict[str, Any]
PAUSE_S = 0.01


class Stopped(Exception):
    """The client has given up."""


class StreamingClient(threading.Thread):
    """Subscribes to one channel and collects what comes, over any number of sessions. `habit` is the name of the scenario whose
    mistake it makes; empty for none."""

    def __init__(self, org: Salesforce, channel: str, habit: str = "") -> None:
        super().__init__(daemon=True)
        self.org, self.channel, self.habit = org, channel, habit
        self.events: list[Reply] = []
        self.records: list[str] = []
        """What the application did: the record ids of change events that it handled."""
        self.error: Exception | None = None
        self.token, self.url = org.token, org.streaming_url
        self.cookies: dict[str, str] = {}
        self.last_id = -1
        self.recovered = 0
        self._ends = threading.Event()

    # The application

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                self._session()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def stop(self) -> None:
        self._ends.set()
        self.org.forget_sessions()
        self.join(60)
        assert not self.is_alive()

    def _session(self) -> None:
        client_id = self._handshake()
        if self.recovered and self.habit == "camel-3247":
            pass
        elif not self._subscribe(client_id):
            return
        while not self._ends.is_set():
            message = {"channel": "/meta/connect", "clientId": client_id, "connectionType": "long-polling"}
            replies = self._attempt(message)
            if not replies:
                return  # what was in the response is lost, and only a replay in a new session brings it again
            for event in replies:
                if event["channel"] == self.channel:
                    self._take(event)
            reply = next((each for each in replies if each["channel"] == "/meta/connect"), None)
            assert reply is not None
            if self.habit == "first-connect" and len(replies) == 1:
                raise Stopped("nothing more comes")
            if not reply["successful"] and self._lost(reply):
                return

    def _take(self, event: Reply) -> None:
        self.events.append(event)
        self.last_id = event["data"]["event"]["replayId"]
        header = event["data"].get("payload", {}).get("ChangeEventHeader")
        if header is not None:
            ids = header["recordIds"]
            if header["changeType"] == "GAP_OVERFLOW" and self.habit != "gap-overflow":
                return  # the application would read all records again
            self.records += [ids[0]] if self.habit == "merged-changes" else ids

    def _lost(self, reply: Reply) -> bool:
        """Whether the session is lost and a new one is to be made."""
        error = reply["error"]
        if self.habit in ("emp-15", "daily-limit") and reply["advice"]["reconnect"] == "none":
            raise Stopped(error)
        if self.habit == "twice" and self.recovered:
            raise Stopped(error)
        if self.habit == "net-43":
            time.sleep(PAUSE_S)
            return False
        self.recovered += 1
        if error.startswith("401") and self.habit != "restforce-589":
            self._log_in()
        time.sleep(PAUSE_S)
        return True

    # Bayeux

    def _handshake(self) -> str:
        while not self._ends.is_set():
            message = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
            (reply,) = self._attempt(message) or [{"successful": False, "error": ""}]
            if reply["successful"]:
                return str(reply["clientId"])
            if self.habit in ("maintenance", "concurrent-clients"):
                raise Stopped(reply["error"])
            if "401" in json.dumps(reply) and self.habit != "restforce-589":
                self._log_in()
            time.sleep(PAUSE_S)
        raise Stopped("ended")

    def _subscribe(self, client_id: str) -> bool:
        """Subscribe after the last event; False if the session is lost."""
        after = -1 if self.habit == "jsforce-1709" else self.last_id
        while not self._ends.is_set():
            replay = {self.channel: after + 1 if self.habit == "wso2-4768" and after > 0 else after}
            if self.habit == "restforce-498":
                replay = {self.channel: None}  # type: ignore[dict-item]
            message = {"channel": "/meta/subscribe", "clientId": client_id, "subscription": self.channel}
            replies = self._attempt({**message, "ext": {"replay": replay}})
            reply = replies[0] if replies else {"successful": False, "error": ""}
            if reply["successful"] or self.habit == "net-20":
                return True
            error = reply["error"]
            if self.habit in ("emp-41", "emp-79", "restforce-498"):
                raise Stopped(error)
            if error.startswith("403::Unknown client"):
                return False
            if "you provided was invalid" in error and self.habit != "long-absence":
                after = -2
            time.sleep(PAUSE_S)
        return True

    # HTTP

    def _attempt(self, message: Reply) -> list[Reply]:
        """The replies; nothing if the connection or the server failed."""
        try:
            return self._post(message)
        except (urllib.error.URLError, OSError, HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # its socket would be found open in a later test
            if self.habit in ("cometd-1142", "reset", "half-body", "bad-gateway"):
                raise
            if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
                self._log_in()  # which says where the org is now
            time.sleep(PAUSE_S)
            return []

    def _post(self, message: Reply) -> list[Reply]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}", "User-Agent": "script"}
        if self.cookies and self.habit != "no-cookies":
            encode = urllib.parse.quote if self.habit == "jetstream-cookies" else str
            headers["Cookie"] = "; ".join(f"{name}={encode(value)}" for name, value in self.cookies.items())
        request = urllib.request.Request(self.url, json.dumps([message]).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            for cookie in response.headers.get_all("Set-Cookie") or []:
                name, _, value = cookie.partition(";")[0].partition("=")
                self.cookies[name] = value
            body = response.read()
        replies: list[Reply] = json.loads(body)
        return replies

    def _log_in(self) -> None:
        form = urllib.parse.urlencode({"grant_type": "password", "username": "user@example.com", "password": "p"})
        url = f"{self.org.login_url}/services/oauth2/token"
        with urllib.request.urlopen(url, form.encode(), timeout=60) as response:
            answer = json.load(response)
        self.token = answer["access_token"]
        if self.habit != "dns-change":
            self.url = f"{answer['instance_url']}/cometd/68.0"
