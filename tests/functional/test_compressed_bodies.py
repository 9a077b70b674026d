"""A compressed request body is refused with 415, by every lane, before a byte of it is inflated."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession, web

from crewel import server as crewel_server
from crewel.settings import Settings
from crewel.settings.server_settings import Bayeux
from crewel.settings.storage import Storage
from tests.functional.conftest import Serve
from tests.functional.wire import Connection, chunked, figures, resident
from tests.server_process import Server

HANDSHAKE = json.dumps([{"channel": "/meta/handshake", "id": "1"}]).encode()
ROOM = 64 * 1024 * 1024  # bytes that the server may grow by while it refuses what would inflate to a gigabyte

MOST_S = 1.5
"""Seconds of the processor; to inflate it all takes three and more."""


def inflating(megabytes: int = 1000) -> bytes:
    """A gzip stream of a kilobyte for each of these megabytes. A full flush ends a block that can be repeated."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(b"0" * 1_000_000) + compressor.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes + b"\x03\0"


BOMB = inflating()


@pytest.fixture
def operated(shared: Serve) -> Server:
    return shared("admin.token=an-operator-of-the-tests")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "x-gzip", "gzip, identity", "GZIP", "nothing"])
@pytest.mark.parametrize("path", ["/cometd", "/cometd/handshake", "/api/publish", "/admin/api/commands"])
def test_a_compressed_body_is_refused_with_415(operated: Server, path: str, coding: str) -> None:
    with Connection(operated) as connection:
        headers = {"Content-Encoding": coding, "Authorization": "Bearer an-operator-of-the-tests"}
        response = connection.post(path, gzip.compress(HANDSHAKE), headers)
    assert response.status == 415
    assert b"compressed" in response.body


def test_a_body_coded_as_itself_is_taken(operated: Server) -> None:
    with Connection(operated) as connection:
        assert connection.post("/cometd", HANDSHAKE, {"Content-Encoding": "identity"}).messages[0]["successful"] is True


def test_a_refused_compressed_body_is_counted(operated: Server) -> None:
    name = 'crewel_refused_payloads_total{fault="coded"}'
    before = figures(operated).get(name, 0)
    with Connection(operated) as connection:
        connection.post("/cometd", gzip.compress(HANDSHAKE), {"Content-Encoding": "gzip"})
    assert figures(operated)[name] == before + 1


@pytest.mark.parametrize("path", ["/cometd", "/api/publish", "/admin/api/commands", "/nowhere", "/health/live"])
@pytest.mark.parametrize("form", ["chunked", "with its length"])
def test_nothing_inflates_a_body(operated: Server, path: str, form: str) -> None:
    """Without a token, with neither path nor size looked at: the processor time of the server says what was done."""
    before, memory = _processor_seconds(operated), resident(operated)
    with Connection(operated) as connection:
        headers = [("Content-Encoding", "gzip"), ("Content-Type", "application/json")]
        body = BOMB
        if form == "chunked":
            headers.append(("Transfer-Encoding", "chunked"))
            body = chunked(*(BOMB[at : at + 16384] for at in range(0, len(BOMB), 16384)))
        with suppress(ConnectionError):  # it may close before it has read what is not worth reading
            connection.request("POST", path, body, headers)
            assert connection.response().status in (401, 404, 405, 413, 415)
    assert _processor_seconds(operated) - before < MOST_S
    assert resident(operated) - memory < ROOM


async def test_an_attached_server_inflates_nothing(tmp_path: Path) -> None:
    """There the connections are aiohttp's own, which inflate; so nothing of a coded body is read."""
    app = web.Application()
    crewel_server.attach(app, Settings(bayeux=Bayeux(path="/events"), storage=Storage(data_dir=str(tmp_path))))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
    async with asyncio.timeout(60), ClientSession() as http:
        started = time.process_time()
        headers = {"Content-Encoding": "gzip"}
        async with http.post(url, data=gzip.compress(HANDSHAKE), headers=headers) as response:
            assert response.status == 415
        with suppress(ClientError):  # it closes before it has read what is not worth reading
            async with http.post(url, data=BOMB, headers=headers) as response:
                assert response.status in (413, 415)
        assert time.process_time() - started < MOST_S
    await runner.cleanup()


def _processor_seconds(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
