"""`crewel console` prints a link that signs in."""

from __future__ import annotations

import re
from pathlib import Path

from tests.admin.desk import TOKEN, Desk
from tests.cli.command import assert_refused, crewel
from tests.conftest import StartServer


def test_link_of_a_server_on_this_machine_signs_in(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(f"admin.token={TOKEN}")
    ended = crewel("console", "--url", server.url, "--token", TOKEN, directory=tmp_path)
    found = re.fullmatch(rf"{re.escape(server.base)}/admin/#code=(\S+)\n", ended.out)
    assert found, ended
    assert Desk(server, None).ask("POST", "/sign-in", {"code": found[1]}).status == 200


def test_without_an_admin_token_there_is_no_link(tmp_path: Path) -> None:
    refused = crewel("console", "--url", "http://127.0.0.1:1/cometd", directory=tmp_path)
    assert_refused(refused, "the admin token of http://127.0.0.1:1/cometd is not found", "--token")
    wrong = crewel("console", "--token", "a.b.c", directory=tmp_path)
    assert wrong.status == 2
