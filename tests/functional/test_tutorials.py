"""That the pages which ask their reader to type commands can be followed as they stand."""

import socket
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT
from tests.terminals import Reader

pytestmark = pytest.mark.timeout(600)

DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "tutorial").glob("*.md"))


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    environ = {"CREWEL_HTTP__PORT": str(port), "CREWEL_URL": f"http://{address}/cometd"}
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "node_modules").symlink_to(ROOT / "tests" / "interop" / "node_modules")
    with Reader(tmp_path, environ, {"127.0.0.1:8080": address}) as reader:
        reader.follow(page)
