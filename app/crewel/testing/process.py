"""A server under test as a process of its own, with its control address, for tests in any language."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable

from aiohttp import web

from crewel.broker.services import Service
from crewel.settings import Settings
from crewel.testing.control import control_app, serve_control
from crewel.testing.facades import AsyncServer, in_thread
from crewel.testing.instance import Instance


async def serve_ephemeral(
    settings: Settings,
    services: Iterable[Service],
    control_port: int,
    on_ready: Callable[[str, str], None],
) -> None:
    """Serve, on a loop of its own, until SIGTERM or SIGINT, `on_ready` is called with the
    Bayeux URL and the control address. Raises OSError, SettingsError and StoreError."""
    with in_thread(settings, lambda ready: Instance(ready, services)) as (thread, instance):
        server = AsyncServer(thread, instance)
        await until_ended(
            control_app(server, instance.settings), settings.http.host, control_port, instance.url, on_ready
        )


async def until_ended(
    app: web.Application, host: str, control_port: int, url: str, on_ready: Callable[[str, str], None]
) -> None:
    """Serve the control address until SIGTERM or SIGINT. Raises SettingsError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner, control = await serve_control(app, host, control_port)
    try:
        on_ready(url, control)
        await stop.wait()
    finally:
        await runner.cleanup()
