"""The stand-in for Salesforce's streaming API as tests use it: `with Salesforce() as org:`, or the fixture `salesforce`.

It is a Crewel server with the settings, the extension and the front of Salesforce, on a clock that can be moved. It has no
store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from aiohttp import web

from crewel.broker.services import Service
from crewel.mock import shapes
from crewel.mock.front import DELAY_S, REVOKED, bayeux_front, mount_logins
from crewel.mock.org import LIFETIME_S, Org
from crewel.mock.salesforce_events import Event
from crewel.mock.salesforce_extension import SalesforceExtension, inner
from crewel.mock.salesforce_rest import mount_rest
from crewel.mock.scenarios import Scenario, scenario_of
from crewel.mock.script import Script, require_fault
from crewel.server import ENDPOINT, attach
from crewel.settings import Settings
from crewel.testing.clock import VirtualLoop, seconds_of
from crewel.testing.facades import in_thread
from crewel.testing.instance import Instance, settings_of
from crewel.transports.http_connection import mark_requests
from crewel.transports.listener import bind
from crewel.transports.tls import certificate_of

T = TypeVar("T")

_SETTINGS: Final[Mapping[str, Any]] = {
    "bayeux.timeout_ms": shapes.TIMEOUT_MS,
    "bayeux.max_interval_ms": shapes.RECONNECT_MS,
    "bayeux.max_message_bytes": shapes.MAX_BODY,
    "bayeux.max_sessions_per_browser": -1,
    "bayeux.transports": "long-polling",
    "bayeux.extensions": "",
    "bayeux.meta_connect_deliver_only": True,
    "http.allowed_hosts": "*",
    "http.fast_lane": False,  # the front sees requests and responses as aiohttp has them
    "security.allow_open": True,  # the front asks for a token
}
_LOOK_S: Final = 0.005
WAIT_S: Final = 10.0
_STEPWISE_S: Final = LIFETIME_S + 600


class _Instance(Instance):
    """The server of one org, and the server for logins, which keeps its address when the org moves."""

    def __init__(self, settings: Settings, org: Org) -> None:
        super().__init__(settings, (), self._build)
        self.org = org
        self.login_url = ""
        self.extension = SalesforceExtension(org)
        self._login: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """The address of the org."""
        return self.url.removesuffix(self.settings.bayeux.path)

    def _build(self, settings: Settings, services: Iterable[Service]) -> web.Application:
        app = web.Application(middlewares=[mark_requests, bayeux_front(self.org)])
        self.extension = SalesforceExtension(self.org)
        attach(app, settings, services, extensions=[self.extension])
        app[ENDPOINT].binds_pages = False  # Salesforce demands the cookie of every client
        self._mount(app)
        mount_rest(app, self.extension)
        return app

    def _mount(self, app: web.Application) -> None:
        app[REVOKED] = self._end_unauthorized
        mount_logins(app, self.org, lambda: self.base_url)

    def _end_unauthorized(self) -> None:
        self.extension.end_unauthorized()  # that of the server that runs now

    async def start(self) -> str:
        """Serve. The address of the org first: nothing is left behind if it is taken."""
        url = await super().start()
        if self._login is None:
            app = web.Application()
            self._mount(app)
            self._login = web.AppRunner(app, access_log=None)
            await self._login.setup()
            certificate = await asyncio.to_thread(certificate_of, self.settings.http)
            tls = None if certificate is None else certificate.context
            for each in await bind(self.settings.http.host, 0):  # one port for all addresses of a name
                await web.SockSite(self._login, each, ssl_context=tls).start()
            scheme = "https" if tls else "http"
            self.login_url = f"{scheme}://{self.settings.http.host}:{self._login.addresses[0][1]}"
        return url

    async def end(self) -> None:
        """Serve nothing any more."""
        await self.stop()
        if self._login is not None:
            await self._virtual.stop_accepting(self._login.addresses[0][1])
            await self._login.cleanup()

    async def move(self) -> None:
        """Serve under another address; nothing answers under the old one."""
        await self.kill()
        before, self.settings.http.port = self.settings.http.port, 0
        while await self.start() and self.port == before:
            await self.kill()
            self.settings.http.port = 0


class Salesforce:
    """One org. `url`, `token` and `login_url` are what a client needs."""

    def __init__(
        self,
        *,
        edition: str = "enterprise",
        channels: Iterable[str] | None = None,
        entities: Mapping[str, Iterable[str]] | None = None,
        accepts_bearer: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool = False,
    ) -> None:
        """`edition` sets the limits: unlimited, performance, enterprise or developer. `channels` are the only channels of the
        org; without them it has every channel with a valid name. `entities` are objects and their fields, by which the
        queries of PushTopics are checked. Without `accepts_bearer` the scheme of `Authorization` must be `OAuth`. With `tls`
        the addresses are https, and clients have to trust the file `certificate`. Raises ValueError."""
        self.settings = settings_of({**_SETTINGS, "http.host": host, "http.port": port}, gettempdir())
        """Those of its server."""
        self._stack = ExitStack()
        self._has_tls = tls
        self.certificate: Path | None = None
        """The file (PEM) that clients have to trust while it runs; None without `tls`."""
        self._skipped: Callable[[], float] = lambda: 0.0
        self._aged = 0.0
        self.org = Org(
            lambda: time.time() + self._skipped() + self._aged,
            edition=edition,
            channels=frozenset(channels) if channels is not None else None,
            entities={name: frozenset(fields) for name, fields in (entities or {}).items()},
            accepts_bearer=accepts_bearer,
        )
        self.token = self.org.new_token()
        """A valid token; further ones come from the logins."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._enter(stack)
            self._stack = stack.pop_all()
        return self

    def _enter(self, stack: ExitStack) -> None:
        if self._has_tls:
            from crewel.mock.self_signed_certificate import make_certificate  # takes a while to load

            directory = Path(stack.enter_context(TemporaryDirectory(prefix="crewel-mock-")))
            made = make_certificate(directory, self.settings.http.host)
            self.settings.http.tls_cert, self.settings.http.tls_key = str(made.path), str(made.key)
            self.certificate = made.path

        def make(settings: Settings) -> _Instance:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            self._skipped = lambda: loop.skipped
            return _Instance(settings, self.org)

        http = self.settings.http
        try:
            self._thread, self._instance = stack.enter_context(in_thread(self.settings, make))
        except OSError as error:
            raise OSError(error.errno, f"cannot serve on {http.host}:{http.port}: {error.strerror or error}") from None
        stack.callback(lambda: self._thread.run(self._instance.end()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # Addresses

    @property
    def url(self) -> str:
        """The address of the org, Salesforce's `instance_url`; another one after `move`."""
        return self._instance.base_url

    @property
    def streaming_url(self) -> str:
        """The address of the streaming API in its newest version."""
        return f"{self.url}/cometd/{shapes.NEWEST_VERSION}"

    @property
    def login_url(self) -> str:
        """The address for logins, which stays: `/services/oauth2/token` and the SOAP login."""
        return self._instance.login_url

    # What happens in the org

    def _call(self, function: Callable[[], T]) -> T:
        """Call it in the server's own thread."""

        async def called() -> T:
            return function()

        return self._thread.run(called())

    def publish(self, channel: str, data: Any = None, *, age: float | str = 0, **more: Any) -> int:
        """Publish an event and return its replay id. `data` is the `sobject` of a PushTopic, otherwise the `payload`. `age` is
        how long ago it was published. `type` is for a PushTopic, `header` has fields of a ChangeEventHeader, `user_ids` are the
        only users that get a generic event. Raises ValueError, and TypeError for any other option."""
        return self._call(lambda: self._instance.extension.publish(channel, data, seconds_of(age), **more)).replay_id

    def publish_while_away(self, channel: str, data: Any = None) -> int:
        """Forget all sessions and publish an event at the same moment, so that clients get it only by a replay. Returns its
        replay id."""

        def both() -> Event:
            self._instance.extension.forget_all()
            return self._instance.extension.publish(channel, data)

        return self._call(both).replay_id

    def push_topic(self, name: str, query: str) -> None:
        """Create a PushTopic, as `POST …/sobjects/PushTopic` does."""
        self._call(lambda: self.org.topics.update({name: {"Name": name, "Query": query, "Id": f"0IF{name}"}}))

    def forget_sessions(self) -> int:
        """Forget all sessions, as when an instance is refreshed; returns how many there were."""
        return self._call(self._instance.extension.forget_all)

    def revoke(self, token: str | None = None) -> None:
        """Withdraw a token, or all; clients with a held connect get the error at once."""

        def revoked() -> None:
            self.org.revoke(token)
            self._instance.extension.end_unauthorized()

        self._call(revoked)

    def new_token(self) -> str:
        """A further valid token."""
        return self._call(self.org.new_token)

    def user_id(self, username: str) -> str:
        """The id of a user, as in the responses of the logins."""
        return self.org.user_id(username)

    def reset(self) -> None:
        """Begin again for the next test, without sessions, events, faults, script and history. Tokens, PushTopics, channels and
        the time stay. A held connect is answered as that of a forgotten session."""

        def empty() -> None:
            self._instance.extension.forget_all()
            self.org.reset()

        self._call(empty)

    def move(self) -> str:
        """Move the org to another address, as a change of DNS does; returns the new one. Sessions and connections end."""
        self._thread.run(self._instance.move())
        return self.url

    def restart(self) -> None:
        """Restart the server on the same address: connections are reset, sessions are gone, events stay."""
        self._thread.run(self._instance.restart())

    def advance(self, duration: float | str, *, keep_up: bool = True) -> None:
        """Let this much time pass: "110s", "3h". `crewel.testing.Server.advance` explains `keep_up`. Raises ValueError."""
        seconds = seconds_of(duration)
        # Every session of now has ended after that, so that the rest of a long time makes only events older.
        stepwise = min(seconds, _STEPWISE_S)
        self._thread.run(self._instance.advance(stepwise, keep_up=keep_up))
        self._call(lambda: setattr(self, "_aged", self._aged + seconds - stepwise))

    # Faults

    def script(self, text: str) -> None:
        """Replace the script of faults; `crewel.mock.script` explains its lines. Raises ValueError."""
        script = Script(text)
        self._call(lambda: setattr(self.org, "script", script))

    def add_fault(self, name: str, *, seconds: float = DELAY_S) -> None:
        """Let every request to which it applies meet this fault, until it is removed; `seconds` is for `delay`. Raises
        ValueError."""
        require_fault(name)
        self._call(lambda: self.org.faults.update({name: seconds}))

    def remove_fault(self, name: str) -> None:
        """Remove the fault."""
        self._call(lambda: self.org.faults.pop(name, None))

    def play(self, name: str, channel: str = "") -> Scenario:
        """Play the scenario of a known bug: `play("cometd-1142")`. Returns it; its `summary` says what happens. A scenario is
        the same for every `channel`. Raises ValueError for an unknown name."""
        scenario = scenario_of(name)
        self.script(scenario.script)
        return scenario

    # What clients did

    @property
    def history(self) -> list[dict[str, Any]]:
        """Every Bayeux message of clients: `at` (virtual seconds), `operation`, `message`, `client`, `fault`, `error`."""
        return self._call(self.org.shown_history)

    def count(self, operation: str) -> int:
        """How many messages of this kind clients have sent: `count("subscribe")`."""
        return self._call(lambda: sum(each.operation == operation for each in self.org.history))

    @property
    def handshakes(self) -> int:
        """How many handshakes clients have sent."""
        return self.count("handshake")

    @property
    def is_script_over(self) -> bool:
        """Whether every rule of the script has applied."""
        return self._call(lambda: self.org.script.is_over)

    def delivered(self, channel: str) -> list[int]:
        """The replay ids of the events of this channel that were sent, one for each time."""
        return self._call(lambda: self.org.delivered(channel))

    def wait_for(self, condition: Callable[[Salesforce], Any], timeout: float = WAIT_S) -> None:
        """Wait until `condition(org)` is true. Raises AssertionError after `timeout` seconds of the machine's clock."""
        until = time.monotonic() + timeout
        while not condition(self):
            if time.monotonic() >= until:
                shown = "\n".join(f"{each['operation']} {each['fault']} {each['error']}" for each in self.history[-20:])
                raise AssertionError(f"the condition was not met within {timeout:g} s; the last messages:\n{shown}")
            time.sleep(_LOOK_S)

    def wait_for_subscriber(self, channel: str, timeout: float = WAIT_S) -> None:
        """Wait until a client is subscribed to the channel and its connect is held."""

        def is_there(_: Salesforce) -> bool:
            def found() -> bool:
                sessions = self._instance.broker.sessions.by_id.values()
                return any(inner(channel) in each.subscriptions and each.held is not None for each in sessions)

            return bool(self._call(found))

        self.wait_for(is_there, timeout)

    @property
    def missed(self) -> dict[str, list[int]]:
        """By channel, the replay ids of retained events that were not sent to a client that had subscribed before them."""
        return self._call(self.org.missed)

    def assert_nothing_missed(self, timeout: float = 2.0) -> None:
        """Check that every event was sent to every client that had subscribed before it and not unsubscribed, in any of the
        client's sessions. Waits up to `timeout` seconds for events that are on their way. A user and a `User-Agent` identify a
        client. Raises AssertionError."""
        until = time.monotonic() + timeout
        while missed := self.missed:
            if time.monotonic() >= until:
                raise AssertionError(f"events that were not delivered: {missed}")
            time.sleep(_LOOK_S)
