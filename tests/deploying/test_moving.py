"""That docs/how-to/from-cometd-java.md can be followed, with CometD's own server and clients: `make test-deploying`."""

from pathlib import Path

import pytest

from tests.functional.test_tutorials import HOW_TO, follow

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


def test_a_server_of_cometd_java_can_be_moved(tmp_path: Path) -> None:
    """Maven gets CometD and Jetty, the first time."""
    follow(HOW_TO / "from-cometd-java.md", tmp_path)
