"""The site of the documentation in Chromium: what readers of screens are told, and what the search finds."""

import fcntl
import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.server_process import ROOT

LIMIT_S = 300.0
AXE = ROOT / "tests" / "interop" / "node_modules" / "axe-core" / "axe.min.js"
WORDS = {
    "ttl": "how-to/topics.html",
    "django": "how-to/django.html",
    "offline": "how-to/point-to-point.html",
    "sync": "reference/client.html",
    "prefetch": "reference/client.html",
    "dlq": "tutorial/dead-letters.html",
    "replay": "how-to/subscribing.html",
    "fastapi": "how-to/fastapi.html",
    "flask": "how-to/flask.html",
    "celery": "how-to/celery.html",
}
"""What readers type, and the page that has to come first."""
COLOURED = {
    "404.html",
    "decisions/0026-clients.html",
    "explanation/guarantees.html",
    "how-to/curl.html",
    "how-to/django.html",
    "how-to/subscribing.html",
    "index.html",
    "pages.html",
    "project/bench/RESULTS.html",
    "reference/browser.html",
    "reference/python-client.html",
    "reference/rest.html",
    "tutorial/chat.html",
}
"""Pages of each kind, with code in each language, tables, tabs and the names of Python."""
SCHEMES: dict[str, dict[str, Any]] = {
    "light": {"resultTypes": ["violations"]},
    "dark": {"resultTypes": ["violations"], "runOnly": ["color-contrast"]},
}
"""What axe looks for: in the dark, only the colours are others."""
IS_FULL = os.environ.get("FAULTS") == "full"
pytestmark = pytest.mark.timeout(LIMIT_S * 3)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once from the pages as they are: testers that run side by side share it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    directory = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            _build(directory)
    return directory


def _build(directory: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(directory)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    if built.returncode:
        shutil.rmtree(directory, ignore_errors=True)
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def site(files: Path) -> Iterator[str]:
    """Where the site is served: its search needs a server."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(files)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_no_page_has_a_finding_of_axe(browser: Browser, files: Path, site: str) -> None:
    """Pages that show each part of a page stand for all others, by day and by lamplight; the full form looks at all by day."""
    pages = [file.relative_to(files).as_posix() for file in sorted(files.rglob("*.html"))]
    assert set(pages) >= COLOURED
    script = AXE.read_text("utf-8")
    found: dict[str, Any] = {}
    for scheme, options in SCHEMES.items():
        context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        page = context.new_page()
        for address in pages if IS_FULL and scheme == "light" else sorted(COLOURED):
            page.goto(f"{site}/{address}", wait_until="load")
            page.evaluate(script)
            for each in page.evaluate("options => axe.run(document, options)", options)["violations"]:
                nodes = [node["html"][:150] for node in each["nodes"][:2]]
                found.setdefault(f"{each['id']}, {scheme}", []).append((address, nodes))
        context.close()
    assert found == {}


def test_the_search_finds_what_readers_type(browser: Browser, site: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site)
    box = page.get_by_role("textbox", name="Search")
    for word, address in WORDS.items():
        box.click()
        box.fill("")
        box.press_sequentially(word)
        page.wait_for_function(
            "address => document.querySelector('.md-search-result__item a')?.href.split(/[?#]/)[0].endsWith(address)",
            arg=address,
        )
    context.close()
