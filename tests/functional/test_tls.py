"""https and wss with a certificate of the test's own, and certificates that are none."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.admin.alert_rules import HERON, LATER, SOON, Alert, Story
from tests.cli.command import crewel
from tests.functional.bayeux import Client
from tests.functional.conftest import Serve
from tests.functional.frames import SocketClient
from tests.functional.wire import LIMIT_S, Connection, descriptors, figures, until
from tests.server_process import Server


class Secure:
    """A server with a certificate, and what its clients have to trust."""

    def __init__(self, server: Server, client: ssl.SSLContext) -> None:
        self.server = server
        self.tls = client

    def connection(self) -> Connection:
        return Connection(self.server, tls=self.tls, host="localhost")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A certificate authority, a certificate of localhost, and its key."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    paths = {name: tmp_path / f"{name}.pem" for name in ("authority", "certificate", "key")}
    authority.cert_pem.write_to_path(str(paths["authority"]))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(paths["certificate"]), append=True)
    certificate.private_key_pem.write_to_path(str(paths["key"]))
    return paths


@pytest.fixture
def secure(serve: Serve, files: dict[str, Path]) -> Secure:
    server = serve(f"http.tls_cert={files['certificate']}", f"http.tls_key={files['key']}")
    return Secure(server, ssl.create_default_context(cafile=str(files["authority"])))


HANDSHAKE = {"channel": "/meta/handshake", "id": "1"}


def test_a_certificate_that_expires_soon_raises_an_alert(
    serve: Serve, secure: Secure, files: dict[str, Path], tmp_path: Path
) -> None:
    authority = trustme.CA()
    ends = datetime.now(UTC) + timedelta(days=3, hours=1)
    authority.issue_cert("localhost", not_after=ends).private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "soon.pem")
    )
    authority.cert_pem.write_to_path(str(tmp_path / "of.pem"))
    sets = (f"http.tls_cert={tmp_path / 'soon.pem'}", f"http.tls_key={tmp_path / 'soon.pem'}")
    soon = Secure(serve(*sets), ssl.create_default_context(cafile=str(tmp_path / "of.pem")))
    expires = Alert("CrewelCertificateExpires", f"The certificate of {HERON} expires in 3 days")
    story = Story()
    story.step(SOON, said_over(soon), fires=[expires])
    story.step(LATER, said_over(secure))  # with another one
    story.check(tmp_path)


def said_over(secure: Secure) -> str:
    with secure.connection() as connection:
        return connection.get("/metrics").body.decode()


def test_bayeux_over_https(secure: Secure) -> None:
    assert secure.server.url.startswith("https://")
    with secure.connection() as connection:
        response = connection.post("/cometd", [HANDSHAKE])
        (reply,) = response.messages
        (cookie,) = response.all("Set-Cookie")
        assert cookie.split("; ")[1:] == ["Path=/", "HttpOnly", "Secure"]
        headers = {"Cookie": cookie.partition(";")[0], "Origin": f"https://localhost:{secure.server.port}"}
        connect = {"channel": "/meta/connect", "clientId": reply["clientId"], "id": "2"}
        assert connection.post("/cometd/connect", [connect], headers).messages[0]["successful"] is True
        held = {**connect, "id": "3", "advice": {"timeout": 300}}
        assert connection.post("/cometd/connect", [held], headers).messages[0]["successful"] is True
        foreign = {**headers, "Origin": f"http://localhost:{secure.server.port}"}
        assert connection.post("/cometd", [connect], foreign).status == 403
    with secure.connection() as connection:
        assert connection.get("/health/live").status == 200


def test_bayeux_over_wss(secure: Secure) -> None:
    client = SocketClient(secure.server, tls=secure.tls, host="localhost").start()
    client.subscribe("/a")
    client.publish("/a", 1)
    assert client.heard() == [1]


def test_a_held_connect_whose_tls_peer_goes_is_let_go(secure: Secure) -> None:
    with secure.connection() as watching:

        def held() -> float:
            exposition = watching.get("/metrics").body.decode()
            return float(exposition.split("\ncrewel_held_connects ")[1].split("\n")[0])

        for how in ("close", "reset"):
            connection = secure.connection()
            response = connection.post("/cometd", [HANDSHAKE])
            cookie = {"Cookie": response.all("Set-Cookie")[0].partition(";")[0]}
            connect = {"channel": "/meta/connect", "clientId": response.messages[0]["clientId"]}
            connection.post("/cometd", [connect], cookie)
            body = b'[{"channel":"/meta/connect","clientId":"%b"}]' % connect["clientId"].encode()
            connection.request("POST", "/cometd", body, cookie)
            until(lambda: held() == 1)
            getattr(connection, how)()
            until(lambda: held() == 0)


def test_plain_http_on_the_port_of_https_disturbs_nobody(secure: Secure) -> None:
    with Connection(secure.server) as plain:
        plain.request("POST", "/cometd", b"[{}]")
        assert not plain.rest().startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", secure.server.port or 0), 5) as silent, secure.connection() as other:
        silent.send(b"\x16\x03\x01")
        assert other.post("/cometd", [HANDSHAKE]).messages


@pytest.mark.parametrize(
    "broken", ["missing certificate", "missing key", "swapped", "another key", "one only", "garbage"]
)
def test_a_certificate_that_cannot_be_used_is_one_clear_line(
    files: dict[str, Path], broken: str, tmp_path: Path
) -> None:
    certificate, key = str(files["certificate"]), str(files["key"])
    if broken == "missing certificate":
        certificate = "nowhere.pem"
    elif broken == "missing key":
        key = "nowhere.pem"
    elif broken == "swapped":
        certificate, key = key, certificate
    elif broken == "another key":
        trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(key)
    elif broken == "garbage":
        Path(certificate).write_text("this is no certificate")
    options = [f"http.tls_cert={certificate}", f"http.tls_key={key}"]
    given = options[:1] if broken == "one only" else options
    ended = crewel("serve", "--port=0", *(f"--set={option}" for option in given), directory=tmp_path)
    assert (ended.status, ended.out) == (1, "")
    (line,) = ended.err.strip().splitlines()
    assert "tls_cert" in line
    assert "Traceback" not in line


def test_without_a_certificate_all_is_plain(server: Server) -> None:
    assert server.url.startswith("http://")
    assert Client(server).handshake()["successful"] is True
    assert figures(server)["crewel_sessions"] >= 1


@pytest.mark.parametrize("silent_from", ["the start", "the end of the handshake", "the answer"])
def test_a_peer_that_falls_silent_over_tls_is_cut_off_in_time(
    serve: Serve, files: dict[str, Path], silent_from: str
) -> None:
    """Nor does the server wait long for an end of TLS that the peer never sends."""
    times = ("http.header_timeout_ms=500", "http.keepalive_ms=500")
    server = serve(f"http.tls_cert={files['certificate']}", f"http.tls_key={files['key']}", *times)
    before = descriptors(server)
    if silent_from == "the start":
        plain = socket.create_connection(("127.0.0.1", server.port), 10)
    else:
        tls = ssl.create_default_context(cafile=str(files["authority"]))
        connection = Connection(server, tls=tls, host="localhost")
        plain = connection.socket
        if silent_from == "the answer":
            assert connection.post("/cometd", [HANDSHAKE]).messages
    with plain:
        plain.settimeout(LIMIT_S)
        with suppress(ConnectionError):
            while plain.recv(4096):
                pass
        until(lambda: descriptors(server) == before)
