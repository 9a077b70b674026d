"""A reload of workers installs the current version under the parent of an earlier release (docs/how-to/cluster.md)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.functional.bayeux import data
from tests.functional.cluster import LONG
from tests.functional.people import Person
from tests.functional.wire import close_connections, figures, until
from tests.server_process import ROOT, Server, processes
from tests.upgrade.releases import Release, earlier  # noqa: F401 - a fixture

pytestmark = pytest.mark.server

PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}


def test_sessions_continue_at_the_workers_of_the_current_version(earlier: Release, tmp_path: Path) -> None:  # noqa: F811
    installed = tmp_path / "installed"
    installed.symlink_to(earlier.tree / "app")
    server = Server(["--port=0", "--set=cluster.workers=2", f"--set={LONG}"], tmp_path, {"PYTHONPATH": str(installed)})
    try:
        people = [Person(server).be() for _ in range(4)]
        for person in people:
            person.subscribe("/news")
        former = set(processes(server))
        installed.unlink()
        installed.symlink_to(ROOT / "app")
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: len(set(processes(server)) - former) == 2 and not former & set(processes(server)), 60)
        for person in people:
            person.forget_connections()
        people[0].publish("/news", "still here", **PERSISTENT)
        assert [data(person.take(timeout=5000)) for person in people] == [["still here"]] * 4
        until(lambda: sum(name.startswith("crewel_build_info{") for name in figures(server)) == 2)
    finally:
        close_connections()
        server.end_well()
