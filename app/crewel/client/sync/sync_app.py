"""A program of workers without asyncio: functions that are called in threads with the messages of channels."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack, overload

from crewel.client.app import SIGNALS, check_parts, session_name
from crewel.client.arguments import check_count
from crewel.client.client_message import DataT
from crewel.client.config import Options
from crewel.client.sync.sync_client import Client
from crewel.client.sync.sync_consumer import Consumer, Handler, check_handler
from crewel.client.worker_options import WorkerOptions

HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, slots=True)
class Part:
    """One function, and the messages that it is called with."""

    consumer: Consumer
    handler: Handler
    at_once: int


class App:
    """Functions that process the messages of channels, as one program.

        app = App("http://127.0.0.1:8080/cometd")

        @app.consumer("/orders/*", group="bakers", at_once=4)
        def bake(order: Delivery) -> None:
            print("baked", order.data)

        app.run()

    Names, arguments and errors are those of `crewel.client.App`; the functions run in threads.
    """

    # Written by tools/sync_client.py, as crewel.client.App has it
    def __init__(self, url: str, *, number: int = 1, **options: Unpack[Options]) -> None:
        check_count("number", number)
        self._begin(Client(url, **options), number)

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
        """Call the function below with each message of a channel or a wildcard, at most `at_once` at the same time, each
        in a thread. The arguments and errors are those of `crewel.client.App.consumer`."""
        check_count("at_once", at_once)
        return self._adding(lambda own: self.client.consume(channel, name=own, data=data, **options), name, at_once)

    # End of what is written

    def _begin(self, client: Client, number: int) -> None:
        self.client = client
        """The client for what the functions publish; it is open while the app runs."""
        self._number = number
        self._parts: dict[str, Part] = {}

    def _adding(self, consume: Callable[[str], Consumer], name: str | None, at_once: int) -> Callable[[Any], Any]:
        def add(handler: Any) -> Any:
            check_handler(handler)
            session = session_name(name, handler, self._number, self._parts)
            self._parts[session] = Part(consume(session), handler, at_once)
            return handler

        return add

    def run(self) -> None:
        """Process messages until `stop`, SIGTERM or Ctrl+C: then no more messages are taken, and those that are being processed
        are finished. Signals count only if this is the main thread. If one of the sessions ends, the others stop too. Raises
        the errors of opening a client, and of the iteration of a consumer."""
        check_parts(self._parts)
        with (
            self.client,
            _stopped_by_signals(self.stop),
            ThreadPoolExecutor(len(self._parts), thread_name_prefix="crewel-client-app") as pool,
        ):
            parts = self._parts.values()
            ends = [pool.submit(each.consumer.run, each.handler, at_once=each.at_once) for each in parts]
            try:
                wait(ends, return_when=FIRST_COMPLETED)
            finally:
                self.stop()
            for each in ends:
                each.result()

    def stop(self) -> None:
        """Take no more messages: `run` ends when the functions that have begun have ended."""
        for part in self._parts.values():
            part.consumer.stop()


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def end(*_: object) -> None:
        restore()  # a second signal ends the program
        stop()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in SIGNALS:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()
