"""`make report`, as a person runs it beside a server."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.admin.desk import SETS, STORED, Desk, Receiver
from tests.conftest import StartServer
from tests.functional.bayeux import Client
from tests.functional.wire import until
from tests.pipeline.quick_spark import QUICK
from tests.server_process import ROOT


@pytest.mark.timeout(600)  # it takes 25 seconds, but much longer on a machine under load
def test_make_report_writes_a_page_about_a_running_server(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SETS)
    till = Receiver(server).be("till/1")
    till.subscribe("/till/orders")
    Client(server).start().publish("/till/orders", "twelve", ext=STORED)
    till.reject(till.take(timeout=5000), "user.update.illegalArgument", "no number")
    until(Desk(server).letters)
    for name in (".venv", ".cache"):
        (tmp_path / name).symlink_to(ROOT / name)
    environ = {
        f"CREWEL_{name.upper().replace('.', '__')}": value
        for name, _, value in (each.partition("=") for each in server.store_sets)
    }
    quick = " ".join(f"--spark {shlex.quote(f'{name}={value}')}" for name, value in QUICK.items())
    ended = subprocess.run(
        ["timeout", "580", "make", "--file", ROOT / "Makefile", "report", f"OPTIONS=--no-audit --from 1h {quick}"],
        cwd=tmp_path,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "report.html: a page for a browser"
    page = (tmp_path / "report.html").read_text("utf-8")
    assert all(each in page for each in ("client/till/1", "/till/orders", "user.update.illegalArgument"))
