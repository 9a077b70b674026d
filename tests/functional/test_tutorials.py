"""That the pages which ask their reader to type commands can be followed as they stand."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.house.source import ROOT
from tests.ports import free_port
from tests.shell_command import shell_command
from tests.terminals import LIMIT_S, Reader, blocks

pytestmark = pytest.mark.timeout(600)

DOCS = ROOT / "docs"
HOW_TO = DOCS / "how-to"
PAGES = [
    (DOCS / "tutorial" / "chat.md", ""),
    *(
        (DOCS / "tutorial" / f"{name}.md", tab)
        for name in ("worker", "dead-letters")
        for tab in ("Python", "JavaScript")
    ),
    *((DOCS / "tutorial" / "held-receiver.md", tab) for tab in ("Command line", "Python", "JavaScript")),
    *((HOW_TO / f"{name}.md", "") for name in ("from-faye", "from-socket-io", "jwt")),
]
"""Each page with the tab that its reader chooses; where it is empty, the reader does what all tabs say."""
OTHER_SERVER = "8000"
"""The port of the servers beside Crewel, such as the one that an application moves from."""


def follow(page: Path, directory: Path, limit_s: float = LIMIT_S, tab: str = "") -> None:
    """Do what a page says in this directory, with the packages of npm that the pages install. `limit_s` is how long a command
    may take, `tab` what the reader chooses."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    environ = {"CREWEL_HTTP__PORT": str(port), "CREWEL_URL": f"http://{address}/cometd"}
    (directory / ".venv").symlink_to(Path(sys.prefix))
    (directory / "extensions").symlink_to(ROOT / "extensions")
    (directory / "node_modules").symlink_to(ROOT / "tests" / "interop" / "node_modules")
    replaced = {"127.0.0.1:8080": address, OTHER_SERVER: str(free_port())}
    with shell_command() if is_quick(page) else nullcontext() as programs:
        if programs is not None:
            environ["PATH"] = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        with Reader(directory, environ, replaced, limit_s) as reader:
            reader.follow(page, tab)


def is_tutorial(page: Path) -> bool:
    return page.parent.name == "tutorial"


def is_quick(page: Path) -> bool:
    """Whether its commands are forked: tutorials have dozens. Those of the other pages are the installed one, which looks for
    services by itself. So are those of the page of workers, which publishes a second after it starts a program that is to
    subscribe."""
    return is_tutorial(page) and page.stem != "worker"


def seen_by_git(page: Path, directory: Path) -> set[str]:
    """What a reader of this page has made in this directory, and git would want to add in the checkout."""
    made = {f"{each.name}{'/' * each.is_dir()}" for each in directory.iterdir() if not each.is_symlink()}
    if "npm install" in page.read_text("utf-8"):
        made |= {"package.json", "package-lock.json"}
    command = ["git", "check-ignore", "--no-index", *sorted(made)]
    return made - set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines())


@pytest.mark.parametrize(
    ("page", "tab"), [pytest.param(*each, id="-".join(filter(None, (each[0].stem, each[1])))) for each in PAGES]
)
def test_a_page_can_be_followed(page: Path, tab: str, tmp_path: Path) -> None:
    follow(page, tmp_path, tab=tab)
    if is_tutorial(page):  # the others may be followed anywhere
        assert not seen_by_git(page, tmp_path)


def test_each_tutorial_is_followed_in_each_of_its_tabs() -> None:
    for page in (DOCS / "tutorial").glob("*.md"):
        tabs = {block.tab for block in blocks(page)} - {""}
        assert {tab for each, tab in PAGES if each == page} in ({""}, tabs)
