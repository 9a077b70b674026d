"""The composition root: settings become a broker, extensions, transports and pages in one aiohttp application.

`serve` runs it, `build` makes it, `attach` mounts it in another application.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from aiohttp import web

from crewel.admin.administration import Administration
from crewel.admin.commands import answer_remote_calls
from crewel.admin.console import mount_console
from crewel.admin.feed import Feed
from crewel.admin.rest import mount_rest
from crewel.api import mount_api
from crewel.broker.broker import Broker
from crewel.broker.cluster import LONGEST_PAUSE_MS
from crewel.broker.services import Service
from crewel.errors import SettingsError, StoreLost, install_extra
from crewel.event_loop import unless
from crewel.extension import Extension
from crewel.nodes.membership import Membership
from crewel.nodes.several_nodes import Nodes
from crewel.pages import STATIC, figures, mount_demos, mount_extensions, mount_health, mount_metrics, protect_pages
from crewel.security.jwt import JwtPolicy
from crewel.security.tokens import keep_token
from crewel.settings import Settings
from crewel.settings.server_settings import Http
from crewel.storage.store import Store
from crewel.transports.endpoint import Endpoint
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_connection import Connection, mark_requests
from crewel.transports.http_fast import FastConnection
from crewel.transports.listener import Listener, bind
from crewel.transports.origins import is_loopback
from crewel.transports.tls import certificate_of, tls_options
from crewel.workers.worker import Serving, Worker

log = logging.getLogger(__name__)

BROKER = web.AppKey("BROKER", Broker)
ADMIN = web.AppKey("ADMIN", Administration)
ENDPOINT = web.AppKey("ENDPOINT", Endpoint)
NODES = web.AppKey("NODES", Membership)
Join = Callable[[bytes], Awaitable[bytes]]
"""Makes of the figures of this process those of the whole server, for Prometheus."""
JOIN: web.AppKey[Join] = web.AppKey("JOIN")
_SHUTDOWN_TIMEOUT = 5.0  # seconds that answers in progress have when the server goes down
_LEAVE_S = 3.0  # that the farewell to the other nodes may take
_IN_FLIGHT_S: Final = LONGEST_PAUSE_MS / 3000
"""A third of the longest pause that clients are asked for, two thirds of the shortest."""

BUILT_IN = {
    "ack": "crewel.extensions.ack:AckExtension",
    "activity": "crewel.extensions.activity:ActivityExtension",
    "binary": "crewel.extensions.binary:BinaryExtension",
    "replay": "crewel.extensions.replay:ReplayExtension",
    "timestamp": "crewel.extensions.timestamp:TimestampExtension",
    "timesync": "crewel.extensions.timesync:TimesyncExtension",
    "update": "crewel.extensions.update:UpdateExtension",
}
"""The extensions that come with Crewel, by the name that `bayeux.extensions` uses."""


def load_extensions(names: Iterable[str]) -> list[Extension]:
    """The extensions of these names, or of `package.module:Class`. Raises SettingsError for one that there is not."""
    return [_extension(name) for name in names]


def _extension(name: str) -> Extension:
    module, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not attribute:
        known = ", ".join(sorted(BUILT_IN))
        raise SettingsError(
            f"bayeux.extensions: there is no extension {name!r}; known are {known}, or package.module:Class"
        )
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise SettingsError(f"bayeux.extensions: {name!r} cannot be loaded: {error}") from error
    if not isinstance(made, Extension):
        raise SettingsError(f"bayeux.extensions: {name!r} is not a crewel.Extension")
    return made


def attach(
    app: web.Application,
    settings: Settings | None = None,
    services: Iterable[Service] = (),
    *,
    mount: Iterable[str] = (),
    extensions: Iterable[Extension] = (),
) -> Broker:
    """Serve Bayeux in this application, at `bayeux.path`, and return the broker. To be called while an event loop runs,
    before the application starts; the broker lives and ends with the application.

    `mount` names what else is served, of `MOUNTS`. `api` is `/api/publish`. `admin` is `/admin/api`, without which the
    operators' commands find nothing, and the operator's page. `health`, `metrics` and `extensions` are the paths below these
    names. `extensions` come after those of `bayeux.extensions`. Raises SettingsError for an unknown name."""
    return _attach(app, settings or Settings(), services, mount, extensions, _alone)


def _attach(
    app: web.Application,
    settings: Settings,
    services: Iterable[Service],
    mount: Iterable[str],
    extensions: Iterable[Extension],
    join: Join,
) -> Broker:
    mounted = list(mount)
    for name in mounted:
        if name not in MOUNTS:
            raise SettingsError(f"mount: there is no {name!r}; known are {', '.join(MOUNTS)}")
    loaded = [*load_extensions(settings.bayeux.extensions), *extensions]
    if settings.telemetry.traces:
        loaded.append(_tracing(app, settings))
    nodes = Nodes() if settings.cluster.enabled else None
    broker = Broker(settings, loaded, cluster=nodes)
    broker.metrics.gauge("tasks", lambda: len(asyncio.all_tasks()))
    if settings.security.policy == "jwt":
        from crewel.security.jwt_tokens import Tokens

        broker.set_policy(JwtPolicy(Tokens(settings.security)))
    broker.install(services)
    app[ADMIN] = Administration(broker)
    answer_remote_calls(app[ADMIN])
    app[JOIN] = join
    membership = None if nodes is None else _share_store(broker, nodes)
    endpoint = Endpoint(broker, None if membership is None else membership.router)
    endpoint.mount(app)
    app[ENDPOINT] = endpoint
    if membership is not None:
        app[NODES] = app[ADMIN].membership = membership
    app[BROKER] = broker
    app.cleanup_ctx.append(_keys)
    app.cleanup_ctx.append(_life_of_broker)
    if settings.storage.enabled:
        app.cleanup_ctx.append(_life_of_store)
    app.cleanup_ctx.append(_sweeping)
    app.cleanup_ctx.append(_admin_token)  # a start that the store fails leaves no token, and no directory for it
    app.cleanup_ctx.append(_background_of_services)
    # Held requests are answered before the server waits for requests to end.
    app.on_shutdown.append(_drain)
    for name in mounted:
        MOUNTS[name](app)
    return broker


def _tracing(app: web.Application, settings: Settings) -> Extension:
    try:
        from crewel.telemetry import Tracing
    except ImportError as error:
        raise SettingsError(
            f"telemetry.traces needs OpenTelemetry (there is no {error.name}): {install_extra('otel')}"
        ) from error
    tracing = Tracing(settings.node.name)
    app.cleanup_ctx.append(tracing.life)
    return tracing


def _mount_admin(app: web.Application) -> None:
    mount_rest(app, app[ADMIN], STATIC)
    mount_console(app)
    app.cleanup_ctx.append(_life_of_administration)


async def _life_of_administration(app: web.Application) -> AsyncIterator[None]:
    admin, supervisor = app[ADMIN], app[BROKER].supervisor
    feed = Feed(admin)
    feed.start()
    supervisor.start("metrics-history", admin.metrics_history.run_forever)
    supervisor.start("jobs", admin.jobs.run_forever)
    supervisor.start("bin of dead letters", app[BROKER].dead_letters.bin.run_forever)
    await admin.server_timeline.start()
    yield
    await admin.server_timeline.stop()
    await feed.close()


MOUNTS: Final[Mapping[str, Callable[[web.Application], None]]] = {
    "api": lambda app: mount_api(app, app[BROKER]),
    "admin": _mount_admin,
    "health": lambda app: mount_health(app, app[BROKER]),
    "metrics": lambda app: mount_metrics(app, app[BROKER], app[JOIN]),
    "extensions": mount_extensions,
}
"""What `attach` can serve beside Bayeux, and `crewel serve` does."""


async def _keys(app: web.Application) -> AsyncIterator[None]:
    """Get what tokens are verified with, before the first client. Raises SettingsError."""
    policy = app[BROKER].admission.guard.policy
    if isinstance(policy, JwtPolicy):
        await policy.tokens.open()
    yield


async def _admin_token(app: web.Application) -> AsyncIterator[None]:
    """Get what the tokens of operators are compared with, before the first client."""
    broker = app[BROKER]
    token = broker.settings.admin.token
    if token is None:
        try:
            token = await asyncio.to_thread(keep_token, broker.settings.storage.data_dir)
        except OSError as error:
            log.warning("there is no admin token, so there are no operators: %s", error)
    if token is not None:
        broker.admission.admin.know(token)
    yield


async def _life_of_broker(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[BROKER].close()


async def _life_of_store(app: web.Application) -> AsyncIterator[None]:
    broker = app[BROKER]
    store = Store(broker.settings, broker.supervisor)
    await store.open()
    try:
        if NODES in app:
            await app[NODES].listen()
        durability = await broker.make_durable(store)
        try:
            if NODES in app:
                await app[NODES].join()
            yield
        finally:  # also of a start that a signal ends: otherwise the others wait for the end of its lease
            broker.supervisor.shutdown.begin()
            await durability.close()
            if NODES in app:
                await broker.supervisor.shutdown.within(_LEAVE_S, app[NODES].leave(), "the other nodes")
    finally:
        broker.supervisor.shutdown.begin()
        await store.close()


async def _sweeping(app: web.Application) -> AsyncIterator[None]:
    """Sweep, and publish what is due: not before this node knows the groups of the others, which would miss it."""
    broker = app[BROKER]
    broker.supervisor.start("sweeper", broker.sweeper.run_forever)
    yield


async def _background_of_services(app: web.Application) -> AsyncIterator[None]:
    broker = app[BROKER]
    tasks = [broker.supervisor.start(name, body) for name, body in broker.runtime.services.background]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _alone(figures: bytes) -> bytes:
    return figures


def _share_store(broker: Broker, nodes: Nodes) -> Membership:
    """Make of this server one of several that share the store."""
    if (why := broker.settings.why_shorter_hold) is not None:
        log.warning("%s", why)
    nodes.membership = Membership(broker)
    return nodes.membership


async def _drain(app: web.Application) -> None:
    app[BROKER].drain()


async def _announce_end(app: web.Application, lane: FastLane) -> None:
    """Answer all connects, also those on their way, before a connection closes: their clients are asked to wait, and notice
    nothing of the end of their node. Others have its sessions by then."""
    for connection in lane.connections:
        connection.close_when_idle(is_due=False)
    app[BROKER].drain()
    if app[NODES].registry.others():
        await asyncio.sleep(_IN_FLIGHT_S)


def build(settings: Settings, services: Iterable[Service] = (), worker: Worker | None = None) -> web.Application:
    """The whole server as an application: Bayeux, health, metrics, and the demos if `http.demos` is set. `worker`:
    this process is one of several."""
    app = web.Application(middlewares=[mark_requests])
    services = list(services)
    if settings.http.demos:
        from crewel.demo import chat_service

        services.append(chat_service())
    _attach(app, settings, services, MOUNTS, (), _alone if worker is None else worker.join)
    app.middlewares.append(app[ENDPOINT].guard)
    app[ENDPOINT].hosts.on_loopback = is_loopback(settings.http.host)
    # Only of the whole server: an application that mounts Crewel has headers of its own.
    app.on_response_prepare.append(protect_pages)
    if settings.http.demos:
        mount_demos(app)
    return app


async def serve(
    settings: Settings, services: Iterable[Service], on_ready: Callable[[str], None], worker: Worker | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is held and return. A signal during the start ends that. `on_ready` is
    called with the Bayeux URL. A `worker` serves on the sockets of its parent, and ends with it. Raises OSError if the
    address cannot be had, and SettingsError for a certificate that cannot be used. Raises StoreTaken if a server that lives
    has the store, and StoreLost if another one has taken it meanwhile."""
    stop = asyncio.Event() if worker is None else worker.stop
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    has_lost_store = False

    def lost_store() -> None:
        nonlocal has_lost_store
        has_lost_store = True
        stop.set()

    gc.disable()  # what a start makes is there to stay: looking at it again and again is most of what many sessions cost
    async with AsyncExitStack() as stack:
        url = await unless(stop, stack.enter_async_context(listening(settings, services, lost_store, worker)))
        if url is not None:
            _tune_collector()
            on_ready(url)
            await stop.wait()
        log.info("shutting down")
    if has_lost_store:
        raise StoreLost("another server has taken the store")


def _tune_collector() -> None:
    """Keep the garbage collector off the hot path. What is loaded now stays, and a message makes no cycles. So young objects
    are looked at once in many messages and not once in a few hundred allocations. What survives that is looked at again by the
    twelve thousand, some milliseconds of the event loop (0007)."""
    gc.freeze()
    gc.set_threshold(4_000, 2, 800)
    gc.enable()


@asynccontextmanager
async def listening(
    settings: Settings, services: Iterable[Service], lost_store: Callable[[], None], worker: Worker | None = None
) -> AsyncIterator[str]:
    """A server that listens; the value is its Bayeux URL. `lost_store` is called when another server has taken the store."""
    app = build(settings, services, worker)
    app[BROKER].on_store_lost.append(lost_store)
    async with listening_with(app, worker) as url:
        yield url


@asynccontextmanager
async def listening_with(app: web.Application, worker: Worker | None = None) -> AsyncIterator[str]:
    """A server that listens, with an application to which `attach` has added Crewel: `build` makes one, and others bring more
    paths. The value is its Bayeux URL."""
    settings = app[BROKER].settings
    http = settings.http
    certificate = await asyncio.to_thread(certificate_of, http)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_TIMEOUT)
        by_aiohttp = partial(_connection, runner, http, loop)
        lane = FastLane(app[ENDPOINT], by_aiohttp)
        connect = partial(FastConnection, lane)
        # The address first: a server that cannot have it must not have touched the store.
        sockets = await bind(http.host, http.port) if worker is None else worker.listeners()
        broker = app[BROKER]
        if certificate is not None:
            app[ADMIN].server_metrics.certificate = certificate
            broker.supervisor.start("certificate", certificate.watch)
        listener = Listener(sockets, connect, broker.metrics, **tls_options(certificate, http))
        stack.callback(listener.close)
        broker.runtime.life.concerns["descriptors"] = lambda: listener.trouble
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        stack.push_async_callback(lane.close, _SHUTDOWN_TIMEOUT)
        if NODES in app:
            stack.push_async_callback(_announce_end, app, lane)
        stack.callback(listener.close)  # before all others, when the server ends
        if worker is not None:
            parts = app[NODES].registry, app[NODES].calls, partial(figures, broker)
            served = Serving(broker.runtime, broker.runtime.access, *parts)
            await stack.enter_async_context(worker.serving(served))
        await listener.start(broker.supervisor)
        host = f"[{http.host}]" if ":" in http.host else http.host
        yield f"{'http' if certificate is None else 'https'}://{host}:{listener.port}{settings.bayeux.path}"


def _connection(runner: web.AppRunner, http: Http, loop: asyncio.AbstractEventLoop) -> Connection:
    assert runner.server is not None
    return Connection(
        runner.server,
        loop=loop,
        access_log=None,
        keepalive_timeout=http.keepalive_ms / 1000,
        max_line_size=http.max_header_bytes,
        max_field_size=http.max_header_bytes,
        auto_decompress=False,  # it would inflate a body before anything of the request has been looked at
    )
