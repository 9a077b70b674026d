"""A program of workers: functions that are called with the messages of channels, and one client for what they publish."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, Unpack, overload

from crewel.client.arguments import check_count, check_function
from crewel.client.client import Client
from crewel.client.client_message import DataT
from crewel.client.config import Options
from crewel.client.consumer import Consumer, Handler
from crewel.client.worker_options import WorkerOptions

HandlerT = TypeVar("HandlerT", bound=Handler)
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""What ends a program of workers: the first one in good order, a second one at once."""


@dataclass(frozen=True, slots=True)
class Part:
    """One function, and the messages that it is called with."""

    consumer: Consumer
    handler: Handler
    at_once: int


class App:
    """Functions that process the messages of channels, as one program.

        app = App("http://127.0.0.1:8080/cometd")

        @app.consumer("/orders/*", group="bakers")
        async def bake(order: Delivery) -> None:
            print("baked", order.data)

        app.run()

    Each function has a session of its own, and its messages are acknowledged, retried or rejected as `Consumer.run` does it.
    The other arguments are those of `Client`. If several processes run the program, give each a `number` of its own: it is part
    of the names of their sessions. An app runs once.
    """

    def __init__(self, url: str, *, number: int = 1, **options: Unpack[Options]) -> None:
        check_count("number", number)
        self.client = Client(url, **options)
        """The client for what the functions publish; it is open while the app runs."""
        self._number = number
        self._parts: dict[str, Part] = {}

    @overload
    def consumer(
        self,
        channel: str,
        *,
        data: type[DataT],
        name: str | None = None,
        at_once: int = 1,
        **options: Unpack[WorkerOptions],
    ) -> Callable[[Handler[DataT]], Handler[DataT]]: ...

    @overload
    def consumer(
        self,
        channel: str,
        *,
        data: Any = None,
        name: str | None = None,
        at_once: int = 1,
        **options: Unpack[WorkerOptions],
    ) -> Callable[[HandlerT], HandlerT]: ...

    def consumer(
        self,
        channel: str,
        *,
        data: Any = None,
        name: str | None = None,
        at_once: int = 1,
        **options: Unpack[WorkerOptions],
    ) -> Callable[[Any], Any]:
        """Call the function below, or the coroutine function, with each message of a channel or a wildcard, at most `at_once`
        at the same time.

        The name of the session is that of the function with the number of the app, such as `bake/1`, unless you give a `name`.
        `data` and the other options are those of `Client.consume`; workers with the same `group` share the messages. Raises
        ValueError or TypeError for an invalid argument.
        """
        check_count("at_once", at_once)

        def add(handler: Any) -> Any:
            check_function("handler", handler)
            session = session_name(name, handler, self._number, self._parts)
            made = self.client.consume(channel, name=session, data=data, **options)
            self._parts[session] = Part(made, handler, at_once)
            return handler

        return add

    async def serve(self) -> None:
        """Process messages until `stop`, and then wait for the functions that have begun. If one of the sessions ends, the
        others stop too. Raises the errors of entering a client, and of the iteration of a consumer."""
        check_parts(self._parts)
        async with self.client:
            parts = self._parts.values()
            tasks = [asyncio.create_task(each.consumer.run(each.handler, at_once=each.at_once)) for each in parts]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                self.stop()
                await asyncio.wait(tasks)
            except asyncio.CancelledError:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                raise
            for task in tasks:
                task.result()

    def stop(self) -> None:
        """Take no more messages: `serve` and `run` end when the functions that have begun have ended."""
        for part in self._parts.values():
            part.consumer.stop()

    def run(self) -> None:
        """Run `serve` until SIGTERM or Ctrl+C: then no more messages are taken, and those that are being processed are
        finished. A second Ctrl+C ends the program at once; the server sends its open messages again."""

        async def main() -> None:
            with _stopped_by_signals(self.stop):
                await self.serve()

        asyncio.run(main())


def session_name(name: str | None, handler: Any, number: int, known: Any) -> str:
    """The name of the session of a function. Raises ValueError if another function of the app has it."""
    own = name or f"{handler.__name__}/{number}"
    if own in known:
        raise ValueError(f"two functions of an app have the session {own}: give one of them a name")
    return own


def check_parts(parts: dict[str, Any]) -> None:
    """Raises ValueError for an app without functions."""
    if not parts:
        raise ValueError("the app has no consumer: put @app.consumer(channel) before a function")


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop()
        restore()

    def restore() -> None:
        for number in handled:
            loop.remove_signal_handler(number)

    handled = () if os.name == "nt" else SIGNALS  # there Ctrl+C ends the program at once
    for number in handled:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        restore()
