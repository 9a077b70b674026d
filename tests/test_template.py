"""That a command of the template is a process as `python -m crewel` is one."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.shell_command import shell_command
from tests.template import Command

pytestmark = pytest.mark.server

SHOW = """
import json, os, resource, signal, sys, time
print(json.dumps({
    "arguments": sys.argv[1:],
    "directory": os.getcwd(),
    "path": sys.path,
    "zone": time.tzname,
    "environ": dict(os.environ),
    "handlers": [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)],
    "limits": [resource.getrlimit(number) for number in range(8)],
    "lines": [sys.stdout.line_buffering, sys.stderr.line_buffering],
    "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
    "given": sys.stdin.read(),
}))
sys.exit(3)
"""
"""A service that shows what process it is in, and ends it."""

Start = Callable[..., "subprocess.Popen[str]"]


def forked(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return Command(
        arguments, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def executed(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "crewel", *arguments]
    return subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def shown(start: Start, directory: Path) -> tuple[int, str, str]:
    environ = {**os.environ, "CREWEL_HTTP__PORT": "0", "TZ": "Asia/Tokyo"}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        process = start("serve", "--service=show", "--set=storage.enabled=false", cwd=directory, env=environ)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with process:
        out, err = process.communicate("some text", timeout=20)
    return process.returncode, out, err


def test_a_command_has_what_a_real_process_has(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    status, out, err = shown(forked, tmp_path)
    real_status, real_out, real_err = shown(executed, tmp_path)
    assert json.loads(out) == json.loads(real_out)
    assert (status, err) == (real_status, real_err) == (3, "")
    assert json.loads(out)["given"] == "some text"


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("nonsense",), ("serve", "--set=nonsense=1")])
def test_a_command_writes_and_ends_as_a_real_process(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ended = []
    for start in (forked, executed):
        with start(*arguments, cwd=tmp_path) as process:
            ended.append((*process.communicate(timeout=20), process.returncode))
    assert ended[0] == ended[1]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with forked("serve", "--port=0", "--set=storage.enabled=false", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        yield process
        process.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0), (signal.SIGABRT, -6)])
def test_a_signal_ends_a_command_with_its_status(
    serving: subprocess.Popen[str], number: signal.Signals, status: int
) -> None:
    assert serving.poll() is None
    serving.send_signal(number)
    assert serving.wait(20) == status
    with pytest.raises(ProcessLookupError):
        os.kill(serving.pid, 0)


def test_waiting_for_a_command_that_runs_ends_with_the_time(serving: subprocess.Popen[str]) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        serving.wait(0.01)


def test_an_environment_that_a_fork_cannot_obey_starts_a_process(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONHASHSEED": "7"}
    with forked("serve", "--port=0", "--set=storage.enabled=false", cwd=tmp_path, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        assert Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[2] == "crewel"
        process.kill()
    assert process.returncode == -9


def test_other_code_in_the_path_is_what_runs(tmp_path: Path) -> None:
    package = tmp_path / "other" / "crewel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("print('other code')")
    environ = {**os.environ, "PYTHONPATH": str(package.parent)}
    with forked("serve", "--port=0", "--set=storage.enabled=false", cwd=tmp_path, env=environ) as process:
        assert process.communicate(timeout=20) == ("other code\n", "")


def test_a_command_of_a_shell_ends_as_its_program_does_and_is_killed_with_it(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    with shell_command() as programs:
        environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}

        def typed(text: str, **streams: Any) -> subprocess.Popen[str]:
            return subprocess.Popen(["sh", "-c", f"exec {text}"], cwd=tmp_path, env=environ, text=True, **streams)

        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with typed("crewel serve --port=0 --service=show --set=storage.enabled=false", **pipes) as process:
            out, err = process.communicate("some text", timeout=20)
        found = json.loads(out)
        assert (process.returncode, err) == (3, "")
        assert (found["given"], found["directory"], found["arguments"][0]) == ("some text", str(tmp_path), "serve")
        for number, status in ((signal.SIGTERM, 0), (signal.SIGKILL, -9)):
            with typed("crewel serve --port=0 --set=storage.enabled=false", stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("ready ")
                process.send_signal(number)
                assert process.wait(20) == status
                assert process.stdout.read() == ""  # the command has ended too, or would hold it


def test_commands_end_with_the_tests_that_started_them(tmp_path: Path) -> None:
    script = """
import os, subprocess
from tests.shell_command import shell_command
from tests.template import Command
process = Command(["serve", "--port=0", "--set=storage.enabled=false"], stdout=subprocess.PIPE, text=True)
assert process.stdout.readline().startswith("ready ")
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True, timeout=60
    )
    with suppress(ProcessLookupError):
        end = os.pidfd_open(int(ended.stdout))
        assert select.select([end], [], [], 20)[0]
        os.close(end)
