"""`@crewel/client`: packed, installed, checked by TypeScript, built by Vite, and used in Chromium."""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from crewel.pages import EXTENSIONS
from tests.conftest import StartServer
from tests.server_process import ROOT, Server

LIMIT_S = 600.0
"""Ends a build that hangs; it takes a few seconds on a quiet machine."""
LIMIT_MS = 20_000
README_FILES = {"html": "index.html", "js": "app.js"}
README_URL = "http://127.0.0.1:8080/cometd"


def readme_block(language: str) -> str:
    """Return the only example of the package's README in this language. Its page asks its address where the server is."""
    text = (ROOT / "browser" / "README.md").read_text("utf-8")
    (found,) = re.findall(rf"^```{language} title=.*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return found.replace(f'"{README_URL}"', f'new URLSearchParams(location.search).get("server") ?? "{README_URL}"')


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as npm unpacks it, made from a copy, because packing puts files beside its sources."""
    copy = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "browser", copy / "browser", ignore=shutil.ignore_patterns("node_modules", "dist"))
    shutil.copytree(ROOT / "extensions", copy / "extensions", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", copy)
    _run("npm", "pack", "--silent", "--pack-destination", str(copy), cwd=copy / "browser")
    [archive] = copy.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(copy, filter="data")
    return copy / "package"


@pytest.fixture(scope="module")
def project(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, with the package installed."""
    directory = tmp_path_factory.mktemp("project") / "example"
    installed = ROOT / "browser" / "example" / "node_modules"
    assert installed.is_dir(), "make .cache/stamps/package installs it"
    shutil.copytree(installed.parent, directory, ignore=shutil.ignore_patterns("node_modules", "dist"))
    modules = directory / "node_modules"
    shutil.copytree(installed, modules, symlinks=True)
    shutil.copytree(package, modules / "@crewel" / "client")
    return directory


@pytest.fixture(scope="module")
def site(project: Path) -> Iterator[str]:
    """The built example, and at /readme/ the page of the package's README, on an origin of its own."""
    _run("npm", "run", "build", cwd=project)
    (project / "readme").mkdir()
    for language, name in README_FILES.items():
        (project / "readme" / name).write_text(readme_block(language))
    _run("npx", "vite", "build", "readme", "--base=./", "--outDir=../dist/readme", "--logLevel=warn", cwd=project)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(project / "dist"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser profile: its tabs share a database."""
    context = browser.new_context()
    context.set_default_timeout(LIMIT_MS)
    yield context
    context.close()


def _run(*command: str, cwd: Path) -> None:
    ended = subprocess.run(command, cwd=cwd, env=os.environ, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def order(page: Page, pizza: str) -> None:
    """Order as a person does, and wait until the page has taken it."""
    page.get_by_label("Pizza").fill(pizza)
    page.get_by_role("button", name="Order").click()
    expect(page.get_by_label("Pizza")).to_have_value("", timeout=LIMIT_MS)


def shows(page: Page, *pizzas: str) -> None:
    """Wait until the page lists these."""
    expect(page.get_by_role("listitem")).to_have_text(list(pizzas), timeout=LIMIT_MS)


def status(page: Page, text: str) -> None:
    """Wait until the page says this of its connection."""
    expect(page.get_by_role("status")).to_have_text(text, timeout=LIMIT_MS)


def test_the_package_has_the_scripts_that_the_server_serves(package: Path) -> None:
    files = {path.name: path.read_bytes() for path in package.iterdir()}
    for name, path in EXTENSIONS.items():
        assert files.pop(f"{name}.js") == path.read_bytes()
    assert files.keys() == {
        "package.json", "README.md", "LICENSE", "index.js", "index.d.ts",
        "outbox.d.ts", "request.d.ts", "session.d.ts", "update.d.ts",
    }  # fmt: skip


def test_the_types_know_what_the_modules_export(package: Path) -> None:
    """Each exported name of a module is declared, and nothing else is but types."""
    script = "import(process.argv[1]).then((module) => console.log(JSON.stringify(Object.keys(module))))"
    for name in ("outbox", "request", "session", "update"):
        ended = subprocess.run(
            ["node", "-e", script, str(package / f"{name}.js")],
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT_S,
        )
        declared = (package / f"{name}.d.ts").read_text()
        exported = [
            line.split()[2].split("(")[0]
            for line in declared.splitlines()
            if line.startswith(("export class", "export function"))
        ]
        module = [each for each in json.loads(ended.stdout) if each != "Serials"]  # for its tests only
        assert sorted(exported) == sorted(module)


@pytest.mark.timeout(900)  # of this the build is almost all, on a busy machine
def test_orders_survive_the_server_and_the_tab(start_server: StartServer, site: str, context: BrowserContext) -> None:
    sets = [f"http.allowed_origins={site}"]
    server = start_server(*sets)

    def open_tab(name: str) -> Page:
        page = context.new_page()
        page.goto(f"{site}/?server={server.url}&name={name}")
        return page

    first = open_tab("shop/1")
    status(first, "connected, 0 waiting")
    order(first, "Margherita")
    shows(first, "Margherita")
    server.kill()
    status(first, "connecting, 0 waiting")
    order(first, "Funghi")
    order(first, "Tonno")
    status(first, "connecting, 2 waiting")
    first.close()
    again = start_server(*sets, *(text for text in server.store_sets), port=server.port or 0)
    assert again.url == server.url
    second = open_tab("shop/2")
    shows(second, "Funghi", "Tonno")
    status(second, "connected, 0 waiting")


def test_the_page_of_the_readme_uses_all_extensions(
    start_server: StartServer, site: str, context: BrowserContext
) -> None:
    server = start_server(f"http.allowed_origins={site}")
    page = context.new_page()
    page.goto(f"{site}/readme/?server={server.url}")
    page.get_by_role("button", name="Order").click()
    shows(page, "2 pizzas")
    page.get_by_role("button", name="Price").click()
    shows(page, "2 pizzas", "16 euros")
    page.get_by_label("Pizzas").fill("20")
    page.get_by_role("button", name="Order").click()
    shows(page, "2 pizzas", "16 euros", "rejected: the oven is too small")
    page.get_by_label("Pizzas").fill("0")
    page.get_by_role("button", name="Price").click()
    shows(page, "2 pizzas", "16 euros", "rejected: the oven is too small", "no price: how many?")


WITHOUT_A_BUNDLER = """
async () => {
    const {CometD, AckExtension} = await import("/static/vendor/cometd/cometd.js");
    const {Outbox} = await import("/extensions/outbox.js");
    const refused = [];
    const outbox = new Outbox({name: "test", maxMessages: 2, onRefused: (publish) => refused.push(publish.key)});
    await outbox.publish("/outbox/a", 1, {key: "one"});
    await outbox.publish("/outbox/a", 1, {key: "one"});
    await outbox.publish("/outbox/a", 2, {key: "bad", ext: {publish: {priority: 77}}});
    const full = await outbox.publish("/outbox/a", 3).catch((error) => error.name);
    const cometd = new CometD();
    cometd.configure({url: "/cometd"});
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("outbox", outbox);
    const heard = [];
    await new Promise((resolve) => {
        cometd.handshake((reply) => cometd.subscribe("/outbox/a", (message) => {
            heard.push(message.data);
            if (message.data === "last") {
                resolve();
            }
        }));
        const wait = setInterval(() => {
            if (outbox.waiting === 0) {
                clearInterval(wait);
                outbox.publish("/outbox/a", "last");
            }
        }, 10);
    });
    const kept = (await outbox.refused()).map(({key, errorCode}) => [key, errorCode]);
    await outbox.forgetRefused();
    const left = (await outbox.refused()).length;
    let wrong = "";
    try {
        new Outbox({maxMessages: 0});
    } catch (error) {
        wrong = error.message;
    }
    cometd.disconnect();
    return {full, heard, refused, kept, left, wrong};
}
"""


def test_a_page_without_a_bundler_has_an_outbox(start_server: StartServer, context: BrowserContext) -> None:
    server: Server = start_server()
    page = context.new_page()
    page.goto(f"{server.base}/")
    assert page.evaluate(WITHOUT_A_BUNDLER) == {
        "full": "OutboxFullError",
        "heard": [1, "last"],
        "refused": ["bad"],
        "kept": [["bad", "user.illegalArgument"]],
        "left": 0,
        "wrong": "maxMessages is a whole number from 1, not 0",
    }
