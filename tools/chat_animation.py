"""Makes docs/assets/chat.svg: the chat in two windows while its server is killed. Real screenshots, shown in turn.

    .venv/bin/python tools/chat_animation.py

It needs what `make test-browser` needs. The SVG loads nothing and runs no script, so that a README can show it.
"""

import base64
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import person  # noqa: E402
from tests.browser.conftest import ARGUMENTS, CHROMIUM  # noqa: E402
from tests.server_process import Server  # noqa: E402
from tests.store_process import end_shared_store  # noqa: E402
from tools.browser import installed  # noqa: E402

WIDTH, HEIGHT, CAPTION = 460, 380, 34
SECONDS = 3.0
"""How long a picture is shown."""


class Film:
    """The pictures, each of all windows, with a caption."""

    def __init__(self, pages: list[Page]) -> None:
        self._pages = pages
        self._scenes: list[tuple[str, list[str]]] = []

    def take(self, caption: str) -> None:
        """Take a picture of each window."""
        shots = []
        for page in self._pages:
            page.locator("#talk").evaluate("element => element.scrollIntoView({block: 'start'})")
            shot = page.screenshot(type="jpeg", quality=62)
            shots.append(base64.b64encode(shot).decode("ascii"))
        self._scenes.append((caption, shots))

    def svg(self) -> str:
        """Return the animation."""
        count = len(self._scenes)
        total = count * SECONDS
        width = WIDTH * len(self._pages) + 10 * (len(self._pages) - 1)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + CAPTION}" width="{width}">',
            "<title>Two windows of the chat; the server is killed and started again, and no line is missing</title>",
            f'<rect width="{width}" height="{HEIGHT + CAPTION}" fill="#24292f"/>',
        ]
        for number, (caption, shots) in enumerate(self._scenes):
            values = ";".join("1" if each == number else "0" for each in range(count))
            parts.append(f'<g opacity="{int(number == 0)}">')
            parts.append(
                f'<animate attributeName="opacity" values="{values}" dur="{total:g}s" calcMode="discrete"'
                ' repeatCount="indefinite"/>'
            )
            parts += (
                f'<image x="{index * (WIDTH + 10)}" y="{CAPTION}" width="{WIDTH}" height="{HEIGHT}"'
                f' href="data:image/jpeg;base64,{shot}"/>'
                for index, shot in enumerate(shots)
            )
            parts.append(
                f'<text x="14" y="23" font-family="monospace" font-size="16" fill="#ffffff">{caption}</text></g>'
            )
        return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Play the scene, and write the file."""
    person.LIMIT_MS = 120_000  # also on a busy machine
    expect.set_options(timeout=person.LIMIT_MS)
    chromium = installed(CHROMIUM)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as player:
        directory = Path(name)
        server = Server(["--set=http.port=0", "--set=bayeux.max_interval_ms=60000"], directory)
        browser = player.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        people = []
        for who in ("ann", "joe"):
            context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            people.append(person.Person(context, server.base, who).join())
        ann, joe = people
        film = Film([each.page for each in people])
        ann.say("Hello Joe!")
        joe.say("Hi Ann.")
        for each in people:
            each.sees("Hi Ann.")
        film.take("$ crewel serve")
        server.kill()
        for each in people:
            each.sees_state("Connection lost, trying again…")
        film.take("$ kill -9 …                       # the server is gone")
        ann.say("Is it down?")
        joe.say("I keep typing.")
        film.take("$ kill -9 …                       # the lines wait in the pages")
        arguments = [f"--set={text}" for text in server.store_sets]
        server = Server([*arguments, f"--set=http.port={server.port}", "--set=bayeux.max_interval_ms=60000"], directory)
        for each in people:
            each.sees_state("Connected")
            each.sees("Is it down?")
            each.sees("I keep typing.")
        film.take("$ crewel serve                    # every line is there, once")
        server.close()
        browser.close()
        end_shared_store()
    file = ROOT / "docs" / "assets" / "chat.svg"
    file.write_text(film.svg(), "utf-8")
    print(file.relative_to(ROOT), f"{file.stat().st_size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
