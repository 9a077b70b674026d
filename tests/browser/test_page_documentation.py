"""That the page of docs/how-to/page.md works, served with Crewel and by another server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.command import crewel
from tests.conftest import StartServer
from tests.house.source import ROOT
from tests.ports import free_port
from tests.store_process import until

GUIDE = (ROOT / "docs" / "how-to" / "page.md").read_text("utf-8")
CREWEL, OTHER = "http://127.0.0.1:8080", "http://127.0.0.1:8000"


def block(language: str) -> str:
    """Return the only example of the guide in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory that the guide lets its reader make."""
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text(block("html"))
    (tmp_path / "page" / "app.js").write_text(block("js"))
    return tmp_path


@contextmanager
def running(directory: Path, *command: str) -> Iterator[None]:
    """Run a server in the directory until the block ends; it prints a line when it listens."""
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=directory,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert " on " in process.stdout.readline(), "the server has ended"
            yield
        finally:
            process.terminate()


@contextmanager
def ordered(browser: Browser, address: str) -> Iterator[None]:
    """Order on the page as the guide says, until it has taken one order and rejected another. It is open during the block:
    its next connect reports what it has rejected."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.get_by_role("button", name="Order").click()
    expect(page.get_by_role("listitem")).to_have_text(["2 pizzas"])
    page.get_by_label("Pizzas").fill("20")
    page.get_by_role("button", name="Order").click()
    expect(page.get_by_role("listitem")).to_have_text(["2 pizzas", "rejected: too many"])
    yield
    context.close()


def test_the_page_is_served_with_crewel(browser: Browser, directory: Path) -> None:
    port = free_port()
    program = block("python")
    assert "port=8080" in program
    (directory / "app.py").write_text(program.replace("port=8080", f"port={port}"))
    with running(directory, "app.py"):
        (file, command) = re.findall(r"^\$ CREWEL_TOKEN=\$\(cat (\S+)\) crewel (.*)$", GUIDE, re.MULTILINE)[0]
        environ = {
            "CREWEL_URL": f"http://127.0.0.1:{port}/cometd",
            "CREWEL_TOKEN": (directory / file).read_text().strip(),
        }
        with ordered(browser, f"http://127.0.0.1:{port}/page/"):
            until(lambda: "user.update.error" in crewel(*command.split(), directory=directory, environ=environ).out)


def test_the_page_is_served_by_another_server(browser: Browser, directory: Path, start_server: StartServer) -> None:
    port = free_port()
    assert f"http.allowed_origins={OTHER}\n" in GUIDE
    base = start_server(f"http.allowed_origins=http://127.0.0.1:{port}").base
    script = block("js")
    for path in re.findall(r'from "(/\S+)"', script):
        assert f'"{CREWEL}{path}"' in GUIDE
        script = script.replace(f'"{path}"', f'"{base}{path}"')
    assert f'replace `import.meta.url` with `"{CREWEL}"`' in " ".join(GUIDE.split())
    (directory / "page" / "app.js").write_text(script.replace("import.meta.url", f'"{base}"'))
    page = f"http://127.0.0.1:{port}/page/"
    with running(directory, "-m", "http.server", str(port), "--bind", "127.0.0.1"), ordered(browser, page):
        pass
