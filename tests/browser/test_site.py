"""The site of the documentation: how its pages are rendered, what screen readers read, and what the search finds."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.server_process import ROOT
from tests.shared_files import made_once

LIMIT_S = 300.0
FENCE = re.compile(r"^( *)```.*?^\1``` *$", re.DOTALL | re.MULTILINE)
AXE = ROOT / "tests" / "interop" / "node_modules" / "axe-core" / "axe.min.js"
QUERIES = {
    "max_message_bytes": "reference/settings.html#bayeux.max_message_bytes",
    "http.allowed_origins": "reference/settings.html#http.allowed_origins",
    "allowed_origins": "reference/settings.html#http.allowed_origins",
    "maxInterval": "reference/settings.html",
    "max_interval_ms": "reference/settings.html#bayeux.max_interval_ms",
    "jwt_publish_claim": "reference/settings.html#security.jwt_publish_claim",
    "storage.durability": "reference/settings.html#storage.durability",
    "on_overflow": "reference/sessions.html#queue",
    "onOverflow": "reference/sessions.html#queue",
    "ackWait": "reference/sessions.html#ackWait",
    "clearSessions": "reference/sessions.html#clearSessions",
    "identicalClient": "reference/sessions.html#user.configuration.identicalClient",
    "user.configuration.maxSession": "reference/sessions.html#user.configuration.maxSession",
    "newestOnly": "reference/subscriptions.html#newestOnly",
    "starts_with": "reference/subscriptions.html#starts_with",
    "resource.overflow.queue.entries": "reference/errors.html",
    "unknownDestination": "reference/errors.html",
    "crewel doctor": "reference/commands.html#crewel-doctor",
    "doctor": "reference/commands.html#crewel-doctor",
    "crewel sessions list": "reference/commands.html#crewel-sessions-list",
    "dead-letters redrive": "reference/commands.html#crewel-dead-letters-redrive",
    "--resume-file": "reference/commands.html",
    "crewel_refused_publishes_total": "reference/metrics.html#crewel_refused_publishes_total",
    "crewel_held_sessions": "reference/metrics.html#crewel_held_sessions",
    "Inbox": "reference/python-client.html#crewel.client.Inbox",
    "NameTaken": "reference/python-client.html#crewel.client.NameTaken",
    "SubscribeRefused": "reference/python-client.html#crewel.client.SubscribeRefused",
    "crewel.client.Consumer": "reference/python-client.html#crewel.client.Consumer",
    "SecurityPolicy": "reference/python-server.html#crewel.SecurityPolicy",
    "SessionExtension": "reference/browser.html#session.js",
    "React": "how-to/react.html",
    "Next.js": "reference/browser.html",
    "next js": "reference/browser.html",
    "typescript": "reference/browser.html",
    "presence": "how-to/presence.html",
    "offline": "how-to/point-to-point.html",
    "consumer group": "how-to/point-to-point.html",
    "ttl": "how-to/topics.html",
    "sync": "how-to/python.html",
    "asyncio": "how-to/python.html",
    "prefetch": "reference/client.html",
    "dlq": "tutorial/dead-letters.html",
    "dead letter queue": "tutorial/dead-letters.html",
    "replay": "how-to/subscribing.html",
    "filter": "how-to/subscribing.html",
    "acknowledge": "how-to/acknowledging.html",
    "acknowlege": "how-to/acknowledging.html",
    "kuberntes": "how-to/kubernetes.html",
    "max_mesage_bytes": "reference/settings.html",
    "promethues": "how-to/monitoring.html",
    "grafana": "how-to/monitoring.html",
    "nginx": "how-to/proxies.html",
    "backup": "how-to/deploying.html",
    "jwt": "how-to/jwt.html",
    "CORS": "how-to/page.html",
    "fastapi": "how-to/fastapi.html",
    "django": "how-to/django.html",
    "flask": "how-to/flask.html",
    "celery": "how-to/celery.html",
    "socket.io": "how-to/from-socket-io.html",
    "sqs": "how-to/from-queues.html",
    "rabbitmq": "how-to/from-queues.html",
    "visibility timeout": "how-to/from-queues.html",
    "maxReceiveCount": "how-to/from-queues.html",
    "purge queue": "how-to/from-queues.html",
    "crontab": "how-to/celery.html",
    "poison message": "tutorial/dead-letters.html",
    "slow consumer": "explanation/guarantees.html",
    "troubleshooting": "how-to/operating.html",
    "rolling upgrade": "how-to/cluster.html",
    "disk full": "how-to/disk.html",
    "rate limit": "how-to/security.html",
    "webhook": "how-to/dead-letters.html",
    "install": "tutorial/chat.html",
    "cells": "how-to/cells.html",
    "move tenant": "how-to/cells.html",
    "multi tenant": "how-to/cells.html",
    "connect": "reference/protocol.html",
    "/meta/connect": "reference/protocol.html",
    "long polling": "reference/protocol.html",
    "connects that arrive twice": "reference/sessions.html",
    "websocket": "how-to/proxies.html",
    "load balancer": "how-to/cluster.html",
    "workers": "how-to/cluster.html",
    "upgrade": "how-to/deploying.html",
    "valkey": "explanation/storage.html",
    "at least once": "explanation/guarantees.html",
    "order of messages": "explanation/guarantees.html",
    "wildcard": "how-to/subscribing.html",
    "rooms": "how-to/from-socket-io.html",
    "rpc": "how-to/request-reply.html",
    "pause": "tutorial/held-receiver.html",
    "pytest fixture": "how-to/testing.html",
    "docker compose": "how-to/docker.html",
    "crewel pipeline report": "how-to/pipeline.html#crewel-pipeline-report",
    "CrewelDropsMessages": "reference/metrics.html#CrewelDropsMessages",
    "CREWEL_HTTP__PORT": "reference/settings.html#http.port",
    "failing_channels": "reference/pipeline-tables.html",
    "delay": "reference/sessions.html#delay",
    "delayed message": "how-to/scheduled-messages.html",
    "413": "reference/errors.html",
    "pyhton": "how-to/python.html",
    "sesion": "how-to/sessions.html",
    "subcription": "how-to/subscribing.html",
    "handshke": "reference/protocol.html",
    "authentification": "how-to/jwt.html",
}
"""What readers type, and the page or the row of a table that has to come first."""
SEARCH = """async ([box, queries]) => {
    const list = document.querySelector(".md-search-result__list");
    const first = () => list.querySelector(".md-search-result__item a")?.href ?? "";
    const until = condition => new Promise(resolve => {
        const look = () => condition() ? resolve() : requestAnimationFrame(look);
        look();
    });
    const found = {};
    for (const query of queries) {
        for (const text of ["", query]) {
            box.value = text;
            box.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
            await until(() => Boolean(first()) === Boolean(text));
        }
        found[query] = first();
    }
    return found;
}"""
"""Types each query into the box of the search; returns where the first result leads."""
ASK = """async ([site, queries]) => {
    const index = await (await fetch(`${site}/search/search_index.json`)).json();
    const worker = new Worker(`${site}/assets/search.js`);
    const answer = message => new Promise((resolve, reject) => {
        worker.onmessage = ({data}) => resolve(data.data);
        worker.onerror = ({message}) => reject(new Error(message));
        worker.postMessage(message);
    });
    await answer({type: 0, data: index});
    const found = {};
    for (const query of queries) {
        const {items} = await answer({type: 2, data: query});
        found[query] = items.slice(0, 1).map(([first]) => [first.location, first.title])[0] ?? null;
    }
    worker.terminate();
    return found;
}"""
"""Asks the worker of the search each query, as the theme does; returns the address and the title of the first result."""
PLAIN_WORDS = re.compile(r"[A-Za-z]?[a-z]+")
FIT = """() => {
    const wide = innerWidth, found = [];
    if (document.documentElement.scrollWidth > wide) found.push("the page scrolls sideways");
    for (const row of document.querySelectorAll("article tr[id]")) {
        const name = row.cells[0].querySelector("code"), meaning = row.cells[row.cells.length - 1];
        const box = meaning.getBoundingClientRect();
        if (name.getClientRects().length > 1 && (wide > 500 || row.id.length < 48)) found.push(`the name is broken: ${row.id}`);
        if (name.getBoundingClientRect().right > wide) found.push(`the name is cut: ${row.id}`);
        const hasRoom = box.right <= wide && (box.width >= 150 || meaning.textContent.length <= 40);
        if (!hasRoom) found.push(`no room for the meaning: ${row.id}`);
    }
    for (const code of document.querySelectorAll("article .short")) {
        if (code.getClientRects().length > 1) found.push(`broken: ${code.textContent}`);
    }
    for (const pre of document.querySelectorAll("article pre:has(> .md-code__nav)")) {
        const [code, button] = ["code", "nav"].map(part => pre.querySelector(part).getBoundingClientRect());
        if (code.right > button.left) found.push(`below the button: ${pre.textContent.slice(0, 40)}`);
    }
    return found;
}"""
"""Looks at a page: names whole, meanings visible, no code below the copy button; returns what is wrong. A phone has no room
for the longest codes, which may break behind a dot."""
FITTING = (
    "explanation/storage",
    "how-to/acknowledging",
    *(
        f"reference/{name}"
        for name in ("commands", "errors", "metrics", "pipeline-tables", "sessions", "settings", "xmlblaster")
    ),
)
LEFT_OVER = re.compile(r"#{2,} |\*\*(?=\w)|\]\(|```|`\w|^=== |^!!! |^\|.*\|$", re.MULTILINE)
"""Markdown that should have been rendered."""
COLOURED = {
    "404.html",
    "decisions/0026-clients.html",
    "explanation/guarantees.html",
    "how-to/curl.html",
    "how-to/django.html",
    "how-to/subscribing.html",
    "index.html",
    "pages.html",
    "reference/browser.html",
    "reference/python-server.html",
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
SHORTEN = """() => {
    const alike = ["article tr:nth-child(n+6)",
                   ".doc-children > .doc-object:nth-child(n+6)", ".md-nav__list > li:nth-child(n+9)"];
    for (const each of document.querySelectorAll(alike)) each.remove();
}"""
"""Leaves the first of what is alike: the rows of a table, the members of a class, the lines of the navigation."""
pytestmark = pytest.mark.timeout(LIMIT_S * 3)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once from the pages as they are: testers that run side by side share it."""
    return made_once(tmp_path_factory, "site", _build)


def _build(directory: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(directory)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
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
    """Pages that show each part of a page stand for all others, by day and by lamplight. The full form looks at all by day,
    and at the whole of each."""
    pages = [file.relative_to(files).as_posix() for file in sorted(files.rglob("*.html"))]
    assert set(pages) >= COLOURED
    script = AXE.read_text("utf-8")
    found: dict[str, Any] = {}
    for scheme, options in SCHEMES.items():
        context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        page = context.new_page()
        for address in pages if IS_FULL and scheme == "light" else sorted(COLOURED):
            page.goto(f"{site}/{address}", wait_until="load")
            if not IS_FULL:
                page.evaluate(SHORTEN)
            page.evaluate(script)
            for each in page.evaluate("options => axe.run(document, options)", options)["violations"]:
                nodes = [node["html"][:150] for node in each["nodes"][:2]]
                found.setdefault(f"{each['id']}, {scheme}", []).append((address, nodes))
        context.close()
    assert found == {}


def test_the_search_finds_first_what_readers_type(browser: Browser, site: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(site)
        box = page.get_by_role("textbox", name="Search")
        box.click()
        found = page.evaluate(SEARCH, [box.element_handle(), list(QUERIES)])
    places = {query: re.sub(r"\?[^#]*", "", address.removeprefix(f"{site}/")) for query, address in found.items()}
    wrong = {
        query: places[query]
        for query, wanted in QUERIES.items()
        if (places[query] if "#" in wanted else places[query].partition("#")[0]) != wanted
    }
    assert wrong == {}


def test_the_search_finds_each_name_that_stays(browser: Browser, site: str) -> None:
    """The record of the names that each version keeps: settings, fields, codes, metrics, commands and classes."""
    names = set(recorded())
    assert len(names) > 400
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(site)
        found = page.evaluate(ASK, [site, sorted(names)])
    wrong = {
        name: place
        for name, place in found.items()
        if place is None or not place[0].startswith("reference/") or squashed(name) not in squashed(place[1])
    }
    assert wrong == {}


def squashed(name: str) -> str:
    """A name as both spellings have it: `onOverflow` and `on_overflow`."""
    return name.replace("_", "").lower()


def recorded() -> Iterator[str]:
    """Yield the names of docs/stable.json as readers type them. A plain word, such as `filter`, may rather find a guide."""
    stable = json.loads((ROOT / "docs" / "stable.json").read_text("utf-8"))
    yield from (name for name in stable["settings"] if ": " not in name)
    yield from (name.partition("{")[0] for name in stable["metrics"])
    yield from (name for name in stable["commands"] if "--" not in name and name == name.lower() and " " in name)
    yield from (name for name in stable["python"] if re.fullmatch(r"crewel\.(client\.)?\w+", name))
    for name in stable["wire"]:
        kind, _, rest = name.partition(" ")
        last = rest if kind == "code" else name.rpartition(".")[2] if name.startswith("ext.") else ""
        if last and not PLAIN_WORDS.fullmatch(last):
            yield last


def test_each_page_is_rendered_as_it_is_written(files: Path) -> None:
    """No Markdown is left in the text of a page, and lists have the numbers of their source."""
    wrong = []
    for file in sorted(files.rglob("*.html")):
        page = Words()
        page.feed(file.read_text("utf-8"))
        address = file.relative_to(files)
        wrong += [
            (str(address), page.text[max(0, found.start() - 30) : found.end() + 30])
            for found in LEFT_OVER.finditer(page.text)
        ]
        source = ROOT / "docs" / address.with_suffix(".md")
        if source.exists() and page.lists != numbered(source.read_text("utf-8")):
            wrong.append((str(address), f"lists of {page.lists} items"))
    assert wrong == []


def numbered(markdown: str) -> list[int]:
    """The lengths of the numbered lists of a page, as its author counted."""
    numbers = [int(number) for number in re.findall(r"^ *(\d+)\. ", FENCE.sub("", markdown), re.MULTILINE)]
    return [last for last, following in zip(numbers, [*numbers[1:], 1], strict=False) if following == 1]


class Words(HTMLParser):
    """What a page shows, without code, and how long its numbered lists are."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.lists, self._open = "", list[int](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("code", "script", "style", "ol", "ul"):
            self._open.append(tag)
        if tag == "ol" and not any("md-" in (value or "") for _, value in attrs):
            self.lists.append(0)
        elif tag == "li" and "ol" in self._open[-1:] and self.lists:
            self.lists[-1] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open[-1:]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not {"code", "script", "style"} & set(self._open):
            self.text += data


@pytest.mark.parametrize("width", [1280, 390])
def test_names_are_whole_and_their_meaning_is_visible(browser: Browser, site: str, width: int) -> None:
    wrong = {}
    with browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce") as context:
        page = context.new_page()
        for name in FITTING:
            answer = page.goto(f"{site}/{name}.html", wait_until="load")
            assert answer is not None
            assert answer.ok, name
            assert page.locator("article .short").count() > 0, name
            assert page.locator("article tr[id]").count() > 0 or not name.startswith("reference/"), name
            expect(page.locator("article pre:has(> code):not(:has(> .md-code__nav))")).to_have_count(0)
            if found := page.evaluate(FIT):
                wrong[name] = found[:5]
    assert wrong == {}
