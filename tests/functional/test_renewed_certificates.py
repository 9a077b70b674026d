"""The certificate that handshakes get: a renewed one is taken from the disk, and one that cannot be used is not."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from crewel.errors import SettingsError
from crewel.server import ADMIN, attach, listening_with
from crewel.settings import Settings, load
from crewel.transports.tls import Certificate

LIMIT_S = 10
WORDS = "http.tls_cert and http.tls_key cannot be used"


class Files:
    """The files of a server's certificate, and the authority that issues them."""

    def __init__(self, directory: Path) -> None:
        self.chain, self.key = directory / "chain.pem", directory / "key.pem"
        self.authority = trustme.CA()
        self.client = ssl.create_default_context()
        self.authority.configure_trust(self.client)
        self._issued = 0

    def issue(self) -> trustme.LeafCert:
        """Issue a certificate that is valid for a day longer than the one before."""
        self._issued += 1
        return self.authority.issue_cert("localhost", not_after=self.ends)

    @property
    def ends(self) -> datetime:
        """When the newest certificate ends."""
        return datetime(2100, 1, 1, tzinfo=UTC) + timedelta(days=self._issued)

    def renew(self) -> None:
        """Replace both files, each by another one of its name."""
        leaf = self.issue()
        self.replace(self.chain, leaf.cert_chain_pems[0])
        self.replace(self.key, leaf.private_key_pem)

    def replace(self, file: Path, blob: trustme.Blob) -> None:
        blob.write_to_path(str(file.with_suffix(".new")))
        file.with_suffix(".new").replace(file)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.renew()
    return made


@pytest.fixture
def certificate(files: Files) -> Certificate:
    return Certificate(str(files.chain), str(files.key))


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Port:
    """Where a server answers handshakes, for clients that trust the authority."""

    def __init__(self, number: int, files: Files) -> None:
        self._number = number
        self._client = files.client

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._number, ssl=self._client, server_hostname="localhost")

    async def shown(self) -> float:
        """When the certificate ends that a handshake gets: seconds since 1970."""
        _, writer = await self.connect()
        found = writer.get_extra_info("peercert")["notAfter"]
        writer.close()
        await writer.wait_closed()
        return ssl.cert_time_to_seconds(found)


@asynccontextmanager
async def echoing(certificate: Certificate, files: Files) -> AsyncIterator[Port]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificate.context)
    async with server, asyncio.timeout(LIMIT_S):
        yield Port(server.sockets[0].getsockname()[1], files)


async def test_the_next_handshake_after_a_look_gets_a_renewed_certificate(
    files: Files, certificate: Certificate
) -> None:
    async with echoing(certificate, files) as port:
        first = files.ends.timestamp()
        assert await port.shown() == certificate.expires_at == first
        reader, writer = await port.connect()
        await asyncio.to_thread(files.renew)
        assert await port.shown() == first
        await certificate.look()
        assert await port.shown() == certificate.expires_at == files.ends.timestamp() > first
        writer.write(b"a connection that is open continues\n")
        assert await reader.readline() == b"a connection that is open continues\n"
        writer.close()
        await writer.wait_closed()


async def test_a_pair_that_does_not_fit_is_logged_once_and_the_former_one_stays(
    files: Files, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with echoing(certificate, files) as port:
        first, leaf = files.ends.timestamp(), files.issue()
        await asyncio.to_thread(files.replace, files.chain, leaf.cert_chain_pems[0])
        for _ in range(2):
            await certificate.look()
        assert await port.shown() == certificate.expires_at == first
        assert [record.levelno for record in caplog.records if WORDS in record.getMessage()] == [logging.ERROR]
        await asyncio.to_thread(files.replace, files.key, leaf.private_key_pem)
        await certificate.look()
        assert await port.shown() == certificate.expires_at == files.ends.timestamp()


async def test_files_that_are_gone_for_a_while_leave_the_certificate(
    files: Files, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with echoing(certificate, files) as port:
        first = files.ends.timestamp()
        await asyncio.to_thread(files.key.unlink)
        await certificate.look()
        assert await port.shown() == first
        (record,) = caplog.records
        assert str(files.key) in record.getMessage()
        await asyncio.to_thread(files.renew)
        await certificate.look()
        assert await port.shown() == files.ends.timestamp()


async def test_a_key_with_a_password_is_refused_without_a_prompt(
    files: Files, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    await certificate.look()
    assert [WORDS in record.getMessage() for record in caplog.records] == [True]


async def test_files_that_have_not_changed_are_not_loaded_again(
    files: Files, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await certificate.look()
    assert not caplog.records


def test_a_certificate_without_its_key_is_refused(files: Files) -> None:
    files.replace(files.key, files.issue().private_key_pem)
    with pytest.raises(SettingsError, match=WORDS):
        Certificate(str(files.chain), str(files.key))


@pytest.fixture
def settings(files: Files) -> Settings:
    names = ["storage.enabled=false", "http.port=0", f"http.tls_cert={files.chain}", f"http.tls_key={files.key}"]
    return load(None, names)


async def test_a_server_shows_and_reports_a_renewed_certificate(files: Files, settings: Settings) -> None:
    app = web.Application()
    broker = attach(app, settings)
    async with listening_with(app) as url, asyncio.timeout(LIMIT_S):
        port = Port(int(url.split(":")[2].split("/")[0]), files)
        assert await port.shown() == files.ends.timestamp()
        await asyncio.to_thread(files.renew)
        certificate = app[ADMIN].server_metrics.certificate
        assert certificate is not None
        await certificate.look()
        assert await port.shown() == files.ends.timestamp()
        assert broker.metrics.value("certificate_expiry_timestamp_seconds") == files.ends.timestamp()
        assert "certificate" in broker.supervisor.restarts, "a task looks"
