"""The parent of the workers, when the machine has no process for one of them."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.cli.serve import _worker_command
from crewel.settings import Settings, load
from crewel.workers import parent as module
from crewel.workers.parent import Parent, _Process

NO_PROCESS = OSError(errno.EAGAIN, "Resource temporarily unavailable")


class Run(Parent):
    """A parent whose processes are none."""

    def __init__(self, settings: Settings, failures: int) -> None:
        super().__init__(settings, lambda *_: [])
        self.failures = failures
        self.spawned: list[int] = []
        self._has_started = True

    async def _spawn(self, number: int) -> _Process:
        self.spawned.append(number)
        if len(self.spawned) <= self.failures:
            raise NO_PROCESS
        return self.worker(number)

    def worker(self, number: int, *, serves: bool = True) -> _Process:
        streams: Any = (None, SimpleNamespace(write=lambda _: None, is_closing=lambda: False))
        process: Any = SimpleNamespace(pid=number, send_signal=lambda _: None)
        made = _Process(number, process, streams, asyncio.get_running_loop().create_future())
        if serves:
            made.ready.set_result("url")
            made.since = asyncio.get_running_loop().time()
            self._running.append(made)
        return made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Those of a parent; reading them looks at files, which must not happen inside the event loop."""
    return load(None, ["cluster.workers=2", f"storage.data_dir={tmp_path}"])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.0)
    for name in ("_EVERY_S", "_NOTE_LIMIT_S", "_COME_BACK_S"):
        monkeypatch.setattr(module, name, 0.0)


async def test_a_worker_whose_process_cannot_be_made_starts_again(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(settings, 6)
    run.worker(1)
    await run._replace(run.worker(2, serves=False), -9)
    assert run.spawned == [2] * 7
    assert run._failed == {2: 7}  # so operators see it in `crewel_workers_failing`
    assert "worker 2 cannot be started (Resource temporarily unavailable), and starts again" in caplog.text
    assert "worker 2 has not started 5 times in a row; 1 of 2 serve" in caplog.text
    assert not run._stop.is_set()


async def test_the_parent_ends_with_the_reason_if_no_other_worker_serves(settings: Settings) -> None:
    run = Run(settings, 100)
    dead = run.worker(1, serves=False)
    dead.since = 1.0
    await run._replace(dead, -9)
    assert run._stop.is_set()
    assert str(run._failure) == "worker 1 cannot be started: Resource temporarily unavailable"
    assert len(run.spawned) <= module._TRIES


async def test_workers_that_cannot_be_replaced_continue(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run = Run(settings, 1)
    old = run.worker(1)
    run._hang_up()
    watching = asyncio.create_task(run._watch())
    while not run.spawned:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not watching.done()
    assert old.is_wanted
    assert "cannot replace worker 1: it continues to run (Resource temporarily unavailable)" in caplog.text
    run._end()
    await watching


async def test_a_worker_that_dies_while_another_one_is_replaced_has_one_successor(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(settings, 0)
    first, second = run.worker(1), run.worker(2)

    def end(worker: _Process) -> None:
        worker.ended.set()
        run._running.remove(worker)

    async def until_ended(worker: _Process) -> None:
        end(worker)
        if worker is first:
            end(second)
            await run._replace(second, -9)

    monkeypatch.setattr(run, "_until_ended", until_ended)
    await run._replace_all()
    assert run.spawned == [1, 2]
    assert [each.number for each in run._running] == [1, 2]


async def test_workers_are_not_replaced_any_more_when_their_parent_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(settings, 0)
    for number in (1, 2):
        run.worker(number)

    async def until_ended(worker: _Process) -> None:
        run._end()

    monkeypatch.setattr(run, "_until_ended", until_ended)
    await run._replace_all()
    assert run.spawned == [1]
    assert "cannot replace" not in caplog.text


async def test_a_parent_that_waits_for_its_store_ends_by_sigterm(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may have to read its file for minutes."""
    handlers: dict[int, Callable[[], None]] = {}
    opening = asyncio.Event()

    async def bound(*_: object) -> list[socket.socket]:
        return []

    async def opened(_: object) -> None:
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", handlers.__setitem__)
    monkeypatch.setattr(module, "bind", bound)
    monkeypatch.setattr(module.Store, "open", opened)
    async with asyncio.timeout(10):
        running = asyncio.create_task(Parent(settings, lambda *_: []).run(pytest.fail))
        await opening.wait()
        handlers[signal.SIGTERM]()
        await running


@pytest.mark.parametrize(
    ("advertise", "of_the_third"),
    [
        ("", ""),
        ("a.example", "a.example"),
        ("a.example:9080", "a.example:9082"),
        ("fd00::5", "fd00::5"),
        ("[fd00::5]:9080", "[fd00::5]:9082"),
    ],
)
def test_each_process_has_fixed_ports_of_its_own(advertise: str, of_the_third: str) -> None:
    sets = ["cluster.workers=2", "cluster.listen=0.0.0.0:7080", f"cluster.advertise={advertise}"]
    parent = Parent(load(None, sets), lambda *_: [])
    with socket.socket() as listener:
        parent._sockets = [listener]
        decided = parent._decided(1, 2)
    assert [each for each in decided if each.startswith(("cluster.listen", "cluster.advertise"))] == [
        "cluster.listen=0.0.0.0:7082",
        f"cluster.advertise={of_the_third}",
    ]


def started(
    monkeypatch: pytest.MonkeyPatch, toml: Path, options: list[str], environ: dict[str, str], embedded: str = ""
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a worker of a parent with these settings; `embedded` is its store's address."""
    begun: list[tuple[list[str], dict[str, str]]] = []

    async def start(*command: str, env: dict[str, str], **_: Any) -> None:
        begun.append((list(command), env))

    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    parent = Parent(load(toml, ["cluster.workers=2", *options]), partial(_worker_command, toml, options, []))
    if embedded:
        parent._store = SimpleNamespace(url=embedded)  # type: ignore[assignment]
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as listener:
        parent._sockets = [listener]
        asyncio.run(parent._process(1, 0, theirs))
    return begun[0]


def read_by(command: list[str], env: dict[str, str]) -> Settings:
    """The settings that a worker with this command reads."""
    (config,) = [each.partition("=")[2] for each in command if each.startswith("--config=")]
    return load(config, [each.partition("=")[2] for each in command if each.startswith("--set=")], env)


URL = "redis://joe:geheim@store.example:6379/0"
SECRETS = '[storage]\nurl = "%s"\n[admin]\ntoken = "geheim-of-operators"\nnotice_webhook_token = "geheim"\n'


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(SECRETS % URL)
    return tmp_path / "mine.toml"


@pytest.mark.parametrize("environ", [{}, {"CREWEL_STORAGE__URL": URL.replace("/0", "/7")}], ids=["file", "environment"])
def test_no_secret_is_in_the_command_line_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, toml: Path, environ: dict[str, str]
) -> None:
    command, env = started(monkeypatch, toml, [], environ)
    assert not [each for each in command if "geheim" in each]
    toml.write_text("")  # a worker reads it again when it starts, and still has the store of the others
    assert read_by(command, env).storage.url == environ.get("CREWEL_STORAGE__URL", URL)


def test_an_address_of_the_store_in_the_command_line_is_that_of_the_workers(
    monkeypatch: pytest.MonkeyPatch, toml: Path
) -> None:
    url = URL.replace("/0", "/3")
    command, env = started(monkeypatch, toml, [f"storage.url={url}"], {"CREWEL_STORAGE__URL": URL})
    assert env["CREWEL_STORAGE__URL"] == read_by(command, env).storage.url == url


@pytest.mark.parametrize("options", [["storage.url="], ["storage.data_dir=x", "storage.url="]])
def test_the_embedded_store_of_the_parent_counts_more_than_other_addresses(
    monkeypatch: pytest.MonkeyPatch, toml: Path, options: list[str]
) -> None:
    command, env = started(monkeypatch, toml, options, {"CREWEL_STORAGE__URL": URL}, "unix:///run/data/store.sock")
    assert read_by(command, env).storage.url == "unix:///run/data/store.sock"
