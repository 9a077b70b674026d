"""That docs/how-to/from-cometd-java.md can be followed, with CometD's own server and clients: `make test-deploying`."""

from pathlib import Path

import pytest

from tests.functional.test_tutorials import HOW_TO, follow

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

DOWNLOAD_S = 600.0
"""How long a command may take: the first one of Maven downloads all that CometD and Jetty need."""


def test_a_server_of_cometd_java_can_be_moved(tmp_path: Path) -> None:
    follow(HOW_TO / "from-cometd-java.md", tmp_path, DOWNLOAD_S)
