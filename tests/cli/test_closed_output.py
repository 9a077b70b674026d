"""How commands end when nothing reads what they print, as in `crewel sessions list | head -1`: quietly, and with 0 unless what
they have found says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.admin.desk import publish
from tests.cli.operators import Post
from tests.server_process import LIMIT_S
from tests.template import PYTHONPATH, ROOT, Command

pytestmark = pytest.mark.server


def unread(*arguments: str, directory: Path, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The status of `crewel ARGUMENTS` and its standard error, where nothing can read standard output from the start."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
    output = without_reader()
    try:
        process = Command(
            arguments, cwd=directory, env=inherited | {"NO_COLOR": "1"} | dict(environ or {}), text=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
        )  # fmt: skip
    finally:
        os.close(output)
    with process:
        _, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, errors


def without_reader() -> int:
    """The writing end of a pipe that has no other."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "--version",
        "sessions --help",
        "pipeline --help",
        "settings",
        "settings --json",
        "doctor",
        "doctor --json",
        "conformance --list",
    ],
)
def test_a_command_that_needs_no_server_ends_quietly(tmp_path: Path, line: str) -> None:
    assert unread(*line.split(), directory=tmp_path) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "sessions list",
        "sessions peek joe/1",
        "sessions show joe/1",
        "subjects list",
        "topics list",
        "topics history /a/b",
        "dead-letters list",
        "dead-letters count",
        "dead-letters export",
        "scheduled list",
        "nodes",
        "audit-log",
        "top --once",
        "cmd __cmd:?clientList",
        "settings get",
    ],
)
def test_a_command_that_asks_a_server_ends_quietly(post: Post, line: str) -> None:
    joe = post.receiver("joe/1", "/a/b")
    post.letters(joe, "/a/b", 1)
    publish(post.server, "/a/b", 1, first=1)
    words = line.split()
    forms = [[], ["--no-json"]] if "--no-json" in post.run(*words, "--help").out else [[]]
    for form in forms:
        assert unread(*words, *form, directory=post.directory, environ=post.environ) == (0, ""), form


def test_a_conformance_run_ends_as_it_was_judged(post: Post, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    arguments = ("conformance", post.server.url, "--transport=long-polling", f"--html={html}")
    assert unread(*arguments, "--only=meta-reply", directory=tmp_path) == (0, "")
    assert html.stat().st_size
    html.unlink()
    assert unread(*arguments, "--only=expiry", directory=tmp_path) == (1, "")  # it needs an option, and was not tested
    assert html.stat().st_size


def test_a_doctor_that_finds_something_wrong_says_so(tmp_path: Path) -> None:
    assert unread("doctor", "--set=storage.url=redis://127.0.0.1:1", directory=tmp_path) == (1, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--port=0", "--set=storage.enabled=false"),
        ("serve", "--ephemeral", "--set=storage.enabled=false"),
        ("mock", "salesforce"),
    ],
)
def test_a_server_whose_address_nothing_reads_says_why_it_ends(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    status, errors = unread(
        *arguments, "--set=log.level=error" if "serve" in arguments else "--port=0", directory=tmp_path
    )
    assert (status, errors) == (1, "crewel: standard output is closed: nothing reads `ready`\n")


def test_a_publisher_reports_how_far_it_came(post: Post) -> None:
    ended = unread("pub", "/a/b", "1", "--count=5", "--json", directory=post.directory, environ=post.environ)
    assert ended == (1, "crewel: standard output is closed: stopped after 1 messages\n")


def test_another_broken_pipe_is_no_quiet_end(tmp_path: Path) -> None:
    code = "from crewel.standard_output import closed_pipe_ends\nwith closed_pipe_ends():\n raise BrokenPipeError('of another')"
    ended = python("-c", code, stdout=subprocess.DEVNULL, directory=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "BrokenPipeError: of another"


def test_other_errors_pass_where_nothing_reads(tmp_path: Path) -> None:
    code = "from crewel.standard_output import closed_pipe_ends\nwith closed_pipe_ends():\n print(1)\n raise SystemExit('no')"
    output = without_reader()
    ended = python("-c", code, stdout=output, directory=tmp_path)
    os.close(output)
    assert (ended.returncode, ended.stderr) == (1, "no\n")


def test_a_script_of_the_repository_ends_quietly() -> None:
    output = without_reader()
    ended = python(str(ROOT / "bench" / "concepts.py"), "--help", stdout=output, directory=ROOT)
    os.close(output)
    assert (ended.returncode, ended.stderr) == (0, "")


def python(*arguments: str, stdout: int, directory: Path) -> subprocess.CompletedProcess[str]:
    """A run of Python with this standard output."""
    environ = os.environ | {"PYTHONPATH": PYTHONPATH, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=directory, env=environ, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S
    )
