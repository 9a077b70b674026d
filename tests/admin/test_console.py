"""The operator's page over HTTP: its files and their headers, and the overview that it shows."""

from __future__ import annotations

import re

import pytest

from crewel.admin.recorder import COLUMNS
from tests.admin.desk import Desk, Receiver, publish
from tests.functional.wire import Connection, Response
from tests.house.source import ROOT
from tests.server_process import Server

pytestmark = pytest.mark.server

FILES = sorted(file.name for file in (ROOT / "static" / "console").iterdir() if file.name != "index.html")


def fetched(server: Server, path: str) -> Response:
    with Connection(server) as connection:
        connection.request("GET", path, b"")
        return connection.response()


def test_every_file_of_the_page_has_strict_headers(server: Server) -> None:
    for path in ("/admin/", *(f"/admin/page/{name}" for name in (*FILES, "style.css", "icon.svg"))):
        response = fetched(server, path)
        assert response.status == 200, path
        policy = response.header("Content-Security-Policy") or ""
        assert policy.startswith("default-src 'none'; script-src 'self';"), path
        assert "unsafe" not in policy
        assert response.header("X-Content-Type-Options") == "nosniff"
        assert response.header("Referrer-Policy") == "no-referrer"
    assert fetched(server, "/admin").status == 301
    for path in ("/admin/page/", "/admin/page/index.html", "/admin/page/..%2fapi.js", "/admin/other"):
        assert fetched(server, path).status == 404, path


def test_page_has_no_inline_code_and_loads_nothing_from_elsewhere() -> None:
    page = (ROOT / "static" / "console" / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=|https?://", page)
    for name in FILES:
        text = (ROOT / "static" / "console" / name).read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://", text), name


def test_overview_has_the_figures_and_what_is_wrong(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    publish(server, channel, 2)
    desk.post(f"/sessions/{subject}/1/hold", {"reason": "out of paper"})
    told = desk.get("/overview")
    assert tuple(told["samples"]) == COLUMNS
    assert told["node"] == "heron"
    sessions = told["sessions"]
    assert sessions["count"] == sum(sessions["states"].values()) == sum(sessions["transports"].values())
    assert told["store"]["trouble"] is None
    assert told["store"]["usedMemory"] > 0
    assert desk.get(f"/overview?after={told['at'] + 10**9}")["samples"]["at"] == []
    receiver.disconnect()
