"""Which processes have ended: by descriptors where the system has them, and by their files elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewel import processes
from crewel.processes import ProcessId, Watch, this_process

pytestmark = pytest.mark.store  # it starts processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def identity(child: subprocess.Popen[bytes]) -> ProcessId:
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ProcessId(child.pid, this_process().machine, started)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def watched(process: ProcessId) -> Watch:
    watch = Watch()
    dead, found = processes.met(watch.keep({process}))
    assert not dead
    watch.add(found)
    return watch


def test_a_process_has_ended_when_it_was_killed_and_not_before(child: subprocess.Popen[bytes]) -> None:
    process = identity(child)
    watch = watched(process)
    assert not watch.keep({process})
    assert not watch.ended()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie, as a container without init leaves it
    assert watch.ended() == {process}


def test_another_process_with_the_number_is_not_taken_for_it(child: subprocess.Popen[bytes]) -> None:
    former = identity(child)._replace(started="1")
    before = descriptors()
    assert processes.met([former]) == ({former}, {})
    assert descriptors() == before


def test_what_is_watched_no_more_has_no_descriptor(child: subprocess.Popen[bytes]) -> None:
    process = identity(child)
    before = descriptors()
    watch = watched(process)
    watch.add(processes.met([process])[1])  # two looks at the same time
    assert descriptors() == before + 1
    assert watch.keep(set()) == set()
    assert descriptors() == before
    assert not watch.ended()


def test_without_descriptors_of_processes_each_look_reads_files(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    process = identity(child)
    watch = watched(process)
    assert watch.keep({process}) == {process}
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.met([process]) == ({process}, {})
