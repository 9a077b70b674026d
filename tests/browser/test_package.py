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
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from crewel.pages import EXTENSIONS
from tests.conftest import StartServer
from tests.ports import free_port
from tests.server_process import ROOT, Server

LIMIT_S = 600.0
"""Ends a build that hangs; it takes a few seconds on a quiet machine."""
LIMIT_MS = 60_000
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
    modules.mkdir()
    for each in installed.iterdir():
        (modules / each.name).symlink_to(each)
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
def other_context(browser: Browser) -> Iterator[BrowserContext]:
    """Another profile."""
    with browser.new_context() as context:
        context.set_default_timeout(LIMIT_MS)
        yield context


CHECK = ("node_modules/.bin/tsc", "--noEmit", "--skipLibCheck")
"""The build of the project has checked the types of all libraries, the package's own among them."""


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


def use_readme(page: Page) -> None:
    """Use all extensions on the page of the README, which was opened while the server was away."""
    # The orders of the other tab are on the same channel, and come too where this page was connected before them.
    lines = page.get_by_role("listitem").filter(has_not_text="undefined pizzas")

    def press(button: str, pizzas: str, *shown: str) -> None:
        page.get_by_label("Pizzas").fill(pizzas)
        page.get_by_role("button", name=button).click()
        expect(lines).to_have_text(list(shown), timeout=LIMIT_MS)

    answered = ["2 pizzas", "16 euros", "rejected: the oven is too small", "no price: how many?"]
    press("Order", "2", *answered[:1])
    press("Price", "2", *answered[:2])
    press("Order", "20", *answered[:3])
    press("Price", "0", *answered)


def status(page: Page, text: str) -> None:
    """Wait until the page says this of its connection."""
    expect(page.get_by_role("status")).to_have_text(text, timeout=LIMIT_MS)


def test_the_package_has_the_scripts_that_the_server_serves(package: Path) -> None:
    files = {path.name: path.read_bytes() for path in package.iterdir()}
    for name, path in EXTENSIONS.items():
        assert (files.pop(f"{name}.js") == path.read_bytes()) is (name != "cometd")  # each has it from elsewhere
    assert files.keys() == {
        "package.json", "README.md", "LICENSE", "index.js", "index.d.ts", "connect.d.ts", "react.js", "react.d.ts",
        "messages.d.ts", "outbox.d.ts", "presence.d.ts", "request.d.ts", "session.d.ts", "update.d.ts",
    }  # fmt: skip


def test_the_types_know_what_the_modules_export(project: Path) -> None:
    """Each exported name of a module is declared, and nothing else is but types. All can be imported without a browser."""
    package = project / "node_modules" / "@crewel" / "client"
    script = "import(process.argv[1]).then((module) => console.log(JSON.stringify(Object.keys(module))))"
    for name in ("connect", "outbox", "presence", "react", "request", "session", "update"):
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


WRONG_ARGUMENTS = """
import {Outbox, RequestExtension, SessionExtension, connect} from "@crewel/client";
import {useChannel, usePresence} from "@crewel/client/react";
const connection = connect({url: "/cometd", token: async () => "t"});
// @ts-expect-error
connect("/cometd");
// @ts-expect-error
connect({name: "joe/1"});
// @ts-expect-error
connect({url: "/cometd", token: async () => 1});
// @ts-expect-error
connection.on("opened", () => {});
// @ts-expect-error
useChannel(connection, "/orders");
// @ts-expect-error
usePresence(connection, "/room", {name: "Joe"});
// @ts-expect-error
connection.presence("/room").members.push({id: "joe", sessions: 1, data: null});
new Outbox({name: "orders"}).publish("/orders", null);
// @ts-expect-error
new Outbox("orders");
// @ts-expect-error
new Outbox().publish("/orders", undefined);
// @ts-expect-error
new RequestExtension(5000);
// @ts-expect-error
new RequestExtension({timeout: "5s"});
// @ts-expect-error
new RequestExtension().request("/power", 7, 5000);
// @ts-expect-error
new SessionExtension("joe/1");
"""
"""What the modules refuse, the types refuse: TypeScript complains of `@ts-expect-error` where it finds no error."""


SAMPLES = (
    "README.md",
    "browser/README.md",
    "docs/how-to/acknowledging.md",
    "docs/how-to/dead-letters.md",
    "docs/how-to/jwt.md",
    "docs/how-to/node.md",
    "docs/how-to/page.md",
    "docs/how-to/point-to-point.md",
    "docs/how-to/presence.md",
    "docs/how-to/react.md",
    "docs/how-to/request-reply.md",
    "docs/how-to/scheduled-messages.md",
    "docs/how-to/sessions.md",
    "docs/how-to/subscribing.md",
    "docs/how-to/topics.md",
    "docs/reference/browser.md",
)
"""The pages whose samples in JavaScript use `cometd` and the package."""
_SAMPLE = re.compile(r'^( *)```(js|tsx?)(?: title="(.*?)")?\n(.*?)^ *```$', re.DOTALL | re.MULTILINE)
_GENERATED = re.compile(r"<!-- generated.*?end of generated -->", re.DOTALL)
"""The declarations of the package, which are compiled with everything that imports it."""
_MODULES = (
    ('"/static/vendor/cometd/cometd.js"', '"cometd"'),
    ('"./extensions/', '"@crewel/client/'),
    ('"/extensions/', '"@crewel/client/'),
)
_EXCERPT = """
import type {CometD} from "cometd";
import {connect, type Connection} from "@crewel/client";
declare const cometd: CometD;
declare const connection: Connection;
"""


def samples(*, are_strict: bool) -> Iterator[tuple[str, str]]:
    """The samples of the pages with the names of their files: those in TypeScript, or those in JavaScript. A module that others
    import has the name that the page gives it."""
    for page in SAMPLES:
        written = _GENERATED.sub("", (ROOT / page).read_text("utf-8"))
        for number, (_, language, title, text) in enumerate(_SAMPLE.findall(written)):
            if (language != "js") != are_strict:
                continue
            if title and re.search(r"^ *export ", text, re.MULTILINE):
                yield f"{Path(page).stem}/{title}", text
            else:
                yield f"{Path(page).stem}{number}.ts", program(text)


def program(sample: str) -> str:
    """The sample as a module. An excerpt gets the client and the names that it speaks of, unless it brings them."""
    for here, there in _MODULES:
        sample = sample.replace(here, there)
    has_own = re.search(r"const (cometd|connection|{outbox})\b|import .*@crewel/client", sample)
    return f"{'' if has_own else _EXCERPT}{sample}\nexport {{}};\n"


@pytest.mark.parametrize("are_strict", [True, False])
def test_the_samples_of_the_documentation_compile(project: Path, tmp_path: Path, are_strict: bool) -> None:
    """Those in JavaScript too, with the types of `cometd` and of the package, and without further annotations.

    In the same run as the strict ones, the types refuse the arguments that the modules refuse.
    """
    directory = project / "samples"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    found = dict(samples(are_strict=are_strict))
    assert len(found) >= (1 if are_strict else 15)
    for name, text in found.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    if are_strict:
        (directory / "wrong.ts").write_text(WRONG_ARGUMENTS)
    for each in ("vue", "@vue", "svelte", "@opentelemetry"):
        if not (project / "node_modules" / each).exists():
            (project / "node_modules" / each).symlink_to(ROOT / "tests" / "interop" / "node_modules" / each)
    untyped = ("cometd-nodejs-client", "@vitejs/plugin-react")
    (directory / "others.d.ts").write_text("".join(f'declare module "{each}";\n' for each in untyped))
    config = {
        "extends": "../tsconfig.json",
        "compilerOptions": {"strict": are_strict, "noImplicitAny": are_strict},
        "include": ["."],
    }
    (directory / "tsconfig.json").write_text(json.dumps(config))
    _run(*CHECK, "--project", str(directory), cwd=project)


COMPILE = """
import {compile} from "svelte/compiler";
const {warnings} = compile(process.argv[1], {});
if (warnings.length) {
    throw new Error(warnings.join());
}
"""


def test_the_component_of_the_documentation_compiles() -> None:
    page = (ROOT / "docs" / "reference" / "browser.md").read_text("utf-8")
    (component,) = re.findall(r'^```html title="\w+\.svelte"\n(.*?)^```$', page, re.DOTALL | re.MULTILINE)
    _run("node", "--input-type=module", "--eval", COMPILE, component, cwd=ROOT / "tests" / "interop")


@pytest.mark.timeout(900)  # of this the build is almost all, on a busy machine
def test_orders_survive_the_server_and_the_tab(
    start_server: StartServer, site: str, context: BrowserContext, other_context: BrowserContext
) -> None:
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
    status(first, "offline, 0 waiting")
    order(first, "Funghi")
    order(first, "Tonno")
    status(first, "offline, 2 waiting")
    first.close()
    second = open_tab("shop/2")
    status(second, "offline, 2 waiting")
    # In the same profile it might send the orders before the second tab has subscribed.
    readme = other_context.new_page()
    readme.goto(f"{site}/readme/?server={server.url}")
    status(readme, "offline: no server, or http.allowed_origins lacks this page")
    again = start_server(*sets, *(text for text in server.store_sets), port=server.port or 0)
    assert again.url == server.url
    shows(second, "Funghi", "Tonno")
    status(second, "connected, 0 waiting")
    third = open_tab("shop/2")
    status(third, "waiting, 0 waiting")
    second.close()
    status(third, "connected, 0 waiting")
    use_readme(readme)


def test_a_double_click_is_one_order_and_a_refused_order_is_shown(
    start_server: StartServer, site: str, context: BrowserContext
) -> None:
    server = start_server(f"http.allowed_origins={site}")
    page = context.new_page()
    page.goto(f"{site}/?server={server.url}&name=shop/3")
    status(page, "connected, 0 waiting")
    page.get_by_label("Pizza").fill("Margherita")
    page.get_by_role("button", name="Order").dblclick()
    order(page, "x" * 61_000)  # more than the client sends
    expect(page.get_by_role("alert")).to_contain_text("was refused: ", timeout=LIMIT_MS)
    order(page, "Funghi")
    shows(page, "Margherita", "Funghi")


HOT = """
import {StrictMode, useState} from "react";
import {createRoot} from "react-dom/client";
import {connect} from "@crewel/client";
import {usePresence} from "@crewel/client/react";
import {Orders} from "./Orders";

const asked = new URLSearchParams(location.search);
const connection = connect({url: asked.get("server")!, name: asked.get("name")!}); // the one of the module that is loaded again
const root = createRoot(document.getElementById("root")!);
Object.assign(window, {connection, renderings: 0});

function Room() {
    const {members, id} = usePresence(connection, "/room", {data: {name: "Joe"}});
    return <p aria-label="members">{members.map((each) => `${each.id} ${each.sessions}${each.id === id ? "!" : ""}`)}</p>;
}

function Rooms() {
    const [isSecond, setSecond] = useState(false);
    Object.assign(window, {addRoom: () => setSecond(true)});
    return <><Room />{isSecond && <Room />}</>;
}

function render(Page: typeof Orders): void {
    root.render(<StrictMode><Page /><Rooms /></StrictMode>);
    window.renderings += 1;
}

declare global {
    interface Window { renderings: number }
}
render(Orders);
import.meta.hot!.accept("./Orders", (loaded) => render(loaded!.Orders));
"""
"""The page of the example, which takes a new version of a module without being loaded again. StrictMode mounts twice then."""


@contextmanager
def developing(project: Path) -> Iterator[str]:
    """Serve the example as a developer does, until the block ends."""
    port = free_port()
    vite_itself = str(project / "node_modules" / ".bin" / "vite")  # `npx` would leave it behind when it is ended
    command = [vite_itself, "--port", str(port), "--strictPort", "--host", "127.0.0.1"]
    plain = os.environ | {"NO_COLOR": "1"}  # where CI is set, Vite colours its lines also for a pipe
    with subprocess.Popen(
        command, cwd=project, env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as vite:
        try:
            assert vite.stdout is not None
            assert any("Local:" in line for line in vite.stdout), "vite has ended"
            yield f"http://127.0.0.1:{port}"
        finally:
            vite.terminate()


def test_a_new_version_of_a_module_keeps_the_session(
    project: Path, start_server: StartServer, context: BrowserContext
) -> None:
    """In StrictMode, in which React mounts each component twice, and with hot reload, which runs the modules again."""
    (project / "src" / "hot.tsx").write_text(HOT)
    (project / "hot.html").write_text((project / "index.html").read_text().replace("main.tsx", "hot.tsx"))
    with developing(project) as origin:
        server = start_server(f"http.allowed_origins={origin}")
        page = context.new_page()
        page.goto(f"{origin}/hot.html?server={server.url}&name=dev/1")
        status(page, "connected, 0 waiting")
        order(page, "Margherita")
        shows(page, "Margherita")
        client = page.evaluate("connection.cometd.getClientId()")
        module = project / "src" / "crewel.ts"
        module.write_text(module.read_text() + "export const version = 2;\n")
        page.wait_for_function("() => renderings === 2", timeout=LIMIT_MS)
        order(page, "Funghi")
        shows(page, "Funghi")
        status(page, "connected, 0 waiting")
        assert page.evaluate("connection.cometd.getClientId()") == client
        members = page.get_by_label("members", exact=True)
        expect(members).to_have_text("dev 1!", timeout=LIMIT_MS)
        server.kill()
        status(page, "offline, 0 waiting")
        page.evaluate("addRoom()")  # which learns nothing from the server
        expect(members).to_have_text(["dev 1!", "dev 1!"], timeout=LIMIT_MS)


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


REFUSED_BY_SIZE = """
async (only) => {
    const {CometD, AckExtension} = await import("/static/vendor/cometd/cometd.js");
    const {Outbox} = await import("/extensions/outbox.js");
    const {RequestExtension} = await import("/extensions/request.js");
    const cometd = new CometD();
    cometd.configure({url: "/cometd", maxSendBayeuxMessageSize: 100000, maxBackoff: 500});
    cometd.getTransportTypes().filter((type) => type !== only).forEach((type) => cometd.unregisterTransport(type));
    const outbox = new Outbox({name: `size ${only}`});
    const requests = new RequestExtension();
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("outbox", outbox);
    cometd.registerExtension("request", requests);
    const wrong = [];
    for (const [channel, data] of [["orders", 1], ["/meta/connect", 1], ["/size", 1n]]) {
        await outbox.publish(channel, data).catch((error) => wrong.push(error.name));
    }
    await outbox.publish("/size", "small");
    await outbox.publish("/size", "x".repeat(101000), {key: "client"});
    await outbox.publish("/size", "x".repeat(99000), {key: "server"});
    const seen = [];
    const arrived = new Promise((resolve) => {
        cometd.addListener("/meta/handshake", (reply) => {
            if (reply.successful) {
                cometd.subscribe("/size", ({data}) => {
                    seen.push(data);
                    if (data === "last") {
                        resolve();
                    }
                });
            }
        });
    });
    await outbox.publish("/size", "last");
    cometd.handshake();
    await arrived;
    const refused = (await outbox.refused()).map(({key, errorCode, message}) => [key, errorCode, message]);
    const asked = await requests.request("/size", "x".repeat(101000)).catch((error) => error.message);
    cometd.disconnect();
    return {wrong, last: seen.at(-1), refused, asked};
}
"""


@pytest.mark.parametrize("transport", ["websocket", "long-polling"])
def test_what_is_too_large_does_not_stop_the_outbox(
    start_server: StartServer, context: BrowserContext, transport: str
) -> None:
    page = context.new_page()
    page.goto(f"{start_server().base}/")
    by_client = "maxSendBayeuxMessageSize 100000 exceeded"
    by_server = "the message is larger than bayeux.max_message_bytes of the server"
    assert page.evaluate(REFUSED_BY_SIZE, transport) == {
        "wrong": ["TypeError"] * 3,
        "last": "last",
        "refused": [
            ["client", "user.illegalArgument", f"{by_client}: cometd.configure can set a larger one"],
            ["server", "user.illegalArgument", by_server],
        ],
        "asked": f"/size: {by_client}",
    }


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


# The template


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `npm create crewel` runs, packed."""
    directory = tmp_path_factory.mktemp("create")
    _run("npm", "pack", "--silent", "--pack-destination", str(directory), cwd=ROOT / "browser" / "create")
    [archive] = directory.glob("create-crewel-*.tgz")
    return archive


@pytest.fixture(scope="module")
def unpacked(template: Path) -> Path:
    """The packed template as npm unpacks it."""
    with tarfile.open(template) as packed:
        packed.extractall(template.parent, filter="data")
    return template.parent / "package"


def create(template: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the packed template as its README says."""
    command = ["npm", "exec", "--offline", "--yes", "--package", str(template), "--", "create-crewel", *arguments]
    environ = os.environ | {"npm_config_cache": str(directory / "cache"), "npm_config_loglevel": "error"}
    return subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.timeout(900)
def test_a_page_is_made_of_the_packed_template(
    template: Path, package: Path, project: Path, start_server: StartServer, context: BrowserContext, tmp_path: Path
) -> None:
    client = tmp_path / "crewel-client.tgz"
    with tarfile.open(client, "w:gz") as packed:
        packed.add(package, "package")
    ended = create(template, tmp_path, "my-page", "--client", client.name)
    assert ended.returncode == 0, ended.stderr
    made = tmp_path / "my-page"
    description = json.loads((made / "package.json").read_text())
    assert (description["name"], description["dependencies"]["@crewel/client"]) == ("my-page", f"file:{client}")
    assert (made / ".gitignore").read_text() == "node_modules/\ndist/\n"
    (made / "node_modules").symlink_to(project / "node_modules")
    _run("npm", "run", "build", cwd=made)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(made / "dist"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        origin = f"http://127.0.0.1:{served.server_address[1]}"
        server = start_server(f"http.allowed_origins={origin}")
        page = context.new_page()
        page.goto(f"{origin}/?server={server.url}")
        status(page, "connected")
        for pizzas, shown in (("2", ["2 pizzas"]), ("20", ["2 pizzas", "rejected: the oven is too small"])):
            page.get_by_label("Pizzas").fill(pizzas)
            page.get_by_role("button", name="Order").click()
            shows(page, *shown)
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "it takes one directory"),
        (("full",), "is not empty"),
        (("page", "--client", "nothing.tgz"), "there is no nothing.tgz"),
        (("page", "--wrong"), "--wrong"),
    ],
)
def test_the_template_refuses_what_it_cannot_do(
    unpacked: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """The packed program; that npm finds it is part of `test_a_page_is_made_of_the_packed_template`."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    command = ["node", str(unpacked / "create.mjs"), *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not (tmp_path / "page").exists()
