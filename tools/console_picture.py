"""Makes docs/assets/operator.png: the operator's page beside a server with everything wrong. A real screenshot.

    .venv/bin/python tools/console_picture.py

It needs what `make test-browser` needs.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.conftest import ARGUMENTS, CHROMIUM  # noqa: E402
from tests.browser.mess import in_a_mess  # noqa: E402
from tests.browser.test_console import Console  # noqa: E402
from tests.store_process import end_shared_store  # noqa: E402
from tools.browser import installed  # noqa: E402

SIZE = {"width": 1280, "height": 860}
SHOWN = {"x": 0, "y": 0, "width": 1280, "height": 776}
"""To the end of the tiles: the charts below are empty on a server that has just started."""
LIMIT_MS = 120_000


def main() -> None:
    """Bring the trouble about, and write the file."""
    chromium = installed(CHROMIUM)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as player:
        mess = in_a_mess(Path(name))
        browser = player.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        console = Console(browser, mess.server, color_scheme="light", viewport=SIZE).open()
        page = console.page
        for cause in ("client/printer/1 is on hold", "client/archive/1 is full", "The group workers"):
            expect(page.locator("article", has_text=cause).first).to_be_visible(timeout=LIMIT_MS)
        page.wait_for_load_state("networkidle")
        file = ROOT / "docs" / "assets" / "operator.png"
        page.screenshot(path=file, clip=SHOWN)
        console.close()
        browser.close()
        mess.server.end_well()
        end_shared_store()
    print(file.relative_to(ROOT), f"{file.stat().st_size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
