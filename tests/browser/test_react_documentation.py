"""That the page of docs/how-to/react.md works: its files, served by Vite, while the servers behind it come and go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.test_package import (
    LIMIT_MS,
    developing,
    order,
    other_context,  # noqa: F401 - a fixture
    package,  # noqa: F401 - a fixture
    project,  # noqa: F401 - a fixture
    status,
)
from tests.conftest import StartServer
from tests.ports import free_port
from tests.server_process import ROOT
from tests.terminals import blocks

pytestmark = pytest.mark.timeout(900)

MAIN = """
import {StrictMode} from "react";
import {createRoot} from "react-dom/client";
import App from "./App.tsx";

createRoot(document.getElementById("root")!).render(<StrictMode><App /></StrictMode>);
"""
"""What `src/main.tsx` of Vite's template does."""
LIFETIME = "LIFETIME_S = 8 "
JWT_SECRET = "0123456789abcdef" * 4
FORBIDDEN = """
async () => {
    const {connection} = await import("/src/connection.ts");
    await connection.outbox.publish("/forbidden", {pizza: "Hawaii"});
}
"""


def save(project: Path, replaced: dict[str, str]) -> None:  # noqa: F811
    """Save the files of the page in the example, which compiles JSX with esbuild."""
    for block in blocks(ROOT / "docs" / "how-to" / "react.md"):
        if block.is_file:
            text = block.text
            for there, here in replaced.items():
                text = text.replace(there, here)
            file = project / block.title
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    config = project / "vite.config.ts"
    text = config.read_text().replace('import react from "@vitejs/plugin-react";\n', "")
    (project / "vite.config.js").write_text(text.replace("plugins: [react()]", 'esbuild: {jsx: "automatic"}'))
    config.unlink()
    (project / "src" / "main.tsx").write_text(MAIN)
    (project / "../back" / "jwt.secret").write_text(JWT_SECRET)


@contextmanager
def issuing(project: Path) -> Iterator[None]:  # noqa: F811
    """Issue tokens, as the page says, until the block ends."""
    plain = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "tokens.py"]
    with subprocess.Popen(command, cwd=project / "../back", env=plain, stdout=subprocess.PIPE, text=True) as issuer:
        try:
            assert issuer.stdout is not None
            assert "Running on" in issuer.stdout.readline(), "it has ended"
            yield
        finally:
            issuer.kill()


def members(page: Page, *names: str) -> None:
    """Wait until the page shows that these are present, in any order."""
    shown = re.compile("|".join((", ".join(names), ", ".join(reversed(names)))))
    expect(page.get_by_label("members")).to_have_text(shown, timeout=LIMIT_MS)


def lists(page: Page, *pizzas: str) -> None:
    """Wait until the page lists these, in any order, and no others."""
    items = page.get_by_role("listitem")
    expect(items).to_have_count(len(pizzas), timeout=LIMIT_MS)
    for pizza in pizzas:
        expect(items.filter(has_text=re.compile(f"^{re.escape(pizza)}$"))).to_have_count(1, timeout=LIMIT_MS)


def test_the_page_outlives_its_servers_and_its_tokens(
    project: Path,  # noqa: F811
    start_server: StartServer,
    context: BrowserContext,
    other_context: BrowserContext,  # noqa: F811
) -> None:
    port, tokens = free_port(), free_port()
    save(project, {"127.0.0.1:8080": f"127.0.0.1:{port}", "8000": str(tokens), "LIFETIME_S = 60 ": LIFETIME})
    sets = ("security.policy=jwt", f"security.jwt_keys={project.parent / 'back' / 'jwt.secret'}")
    with developing(project) as origin:
        ann = context.new_page()
        ann.goto(origin)
        status(ann, "offline, 0 waiting")
        order(ann, "Margherita")
        status(ann, "offline, 1 waiting")
        server = start_server(*sets, port=port)
        with issuing(project):
            lists(ann, "Margherita")
            sue = other_context.new_page()
            sue.goto(f"{origin}/?user=sue")
            for page in (ann, sue):
                status(page, "connected, 0 waiting")
                members(page, "ann", "sue")
            with ann.expect_request("**/token?user=ann", timeout=LIMIT_MS):
                pass
            order(sue, "Funghi")
            lists(ann, "Margherita", "Funghi")
            server.kill()
            for page in (ann, sue):
                status(page, "offline, 0 waiting")
            order(ann, "Tonno")
            order(sue, "Speck")
            start_server(*sets, *server.store_sets, port=port)
            lists(ann, "Margherita", "Funghi", "Tonno", "Speck")
            lists(sue, "Funghi", "Tonno", "Speck")
            for page in (ann, sue):
                status(page, "connected, 0 waiting")
                members(page, "ann", "sue")
        status(ann, "offline, 0 waiting")
        with issuing(project):
            status(ann, "connected, 0 waiting")
            order(ann, "Rucola")
            lists(sue, "Funghi", "Tonno", "Speck", "Rucola")
            ann.evaluate(FORBIDDEN)
            expect(ann.get_by_role("alert")).to_contain_text("Hawaii was refused: 403:", timeout=LIMIT_MS)
        for path in ("back/jwt.secret", "../back/jwt.secret", f"@fs{project.parent}/back/jwt.secret"):
            assert JWT_SECRET not in ann.request.get(f"{origin}/{path}").text()
