"""A small raw HTTP/1.1 client: it sends exactly the bytes that a test wants sent, and hides nothing of the answer.

Every wait has a limit. Connections that a test leaves open are closed by the fixture in conftest.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, Self

from tests.store_process import looks

LIMIT_S = 30.0  # against a wait that hangs; a busy machine needs a part of it
Headers = Mapping[str, str] | Iterable[tuple[str, str]]

open_connections: list[Connection] = []


class Address(Protocol):
    """What is needed of a server to talk to it."""

    port: int | None


class Process(Protocol):
    """What is needed of a server to look at its processes."""

    @property
    def pids(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Response:
    """One response: `headers` as they came, in their order."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The Bayeux messages of a response that has to have some."""
        assert self.status == 200, (self.status, self.body)
        assert (self.header("Content-Type") or "").startswith("application/json")
        messages = self.json()
        assert isinstance(messages, list)
        assert messages
        return messages


class Connection:
    """One TCP (or TLS) connection."""

    def __init__(self, server: Address, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        assert server.port is not None
        self.host = f"{host}:{server.port}"
        plain = socket.create_connection(("127.0.0.1", server.port), LIMIT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(plain, server_hostname=host) if tls else plain
        self._buffer = b""
        open_connections.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Out

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Headers = (), *, version: str = "1.1"
    ) -> None:
        """Send a request. `Host` and, with a body, `Content-Length` are added unless they are given."""
        self.send(request_bytes(method, path, body, headers, host=self.host, version=version))

    def post(self, path: str, messages: Any, headers: Headers = ()) -> Response:
        """Send messages (anything that JSON can say, or the bytes of a body) and wait for the response."""
        body = messages if isinstance(messages, bytes) else json.dumps(messages).encode()
        self.request("POST", path, body, [("Content-Type", "application/json"), *pairs(headers)])
        return self.response()

    def get(self, path: str, headers: Headers = ()) -> Response:
        self.request("GET", path, b"", headers)
        return self.response()

    # In

    def response(self, limit: float = LIMIT_S, *, to_head: bool = False) -> Response:
        """The next response. EOFError if the connection ends before it is complete."""
        deadline = time.monotonic() + limit
        status_line, *lines = self._until(b"\r\n\r\n", deadline).decode("latin-1").split("\r\n")
        status = int(status_line.split(" ", 2)[1])
        headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        head = Response(status, headers, b"")
        if status < 200 or status in (204, 304) or to_head:
            return head
        return Response(status, headers, self._body(head, deadline))

    def _body(self, head: Response, deadline: float) -> bytes:
        if (head.header("Transfer-Encoding") or "").lower() == "chunked":
            chunks = b""
            while size := int(self._until(b"\r\n", deadline), 16):
                chunks += self.take(size, deadline)
                self.take(2, deadline)
            self._until(b"\r\n", deadline)
            return chunks
        length = head.header("Content-Length")
        if length is not None:
            return self.take(int(length), deadline)
        return self.rest(deadline - time.monotonic())

    def take(self, size: int, deadline: float | None = None) -> bytes:
        """Exactly so many bytes."""
        deadline = time.monotonic() + LIMIT_S if deadline is None else deadline
        while len(self._buffer) < size:
            self._fill(deadline)
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def rest(self, limit: float = LIMIT_S) -> bytes:
        """Everything until the server ends the connection, by FIN or RST."""
        deadline = time.monotonic() + limit
        try:
            while True:
                self._fill(deadline)
        except (EOFError, ConnectionError):
            rest, self._buffer = self._buffer, b""
            return rest

    def has_input(self, within: float = 0) -> bool:
        """Whether something (data, or an end) has come, or comes within these seconds, that was not read."""
        return bool(self._buffer) or bool(select.select([self.socket], [], [], within)[0])

    def _until(self, mark: bytes, deadline: float) -> bytes:
        while mark not in self._buffer:
            self._fill(deadline)
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _fill(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no more came; there was {self._buffer[:200]!r}")
        self.socket.settimeout(left)
        data = self.socket.recv(65536)
        if not data:
            raise EOFError(f"the connection ended after {self._buffer[:200]!r}")
        self._buffer += data

    # The end

    def half_close(self) -> None:
        """Say that nothing more will be sent, and stay to hear the answer."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Go as a crashed peer goes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()


def pairs(headers: Headers) -> list[tuple[str, str]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def request_bytes(
    method: str,
    path: str,
    body: bytes = b"",
    headers: Headers = (),
    *,
    host: str = "localhost",
    version: str = "1.1",
) -> bytes:
    """The bytes of one request."""
    given = pairs(headers)
    names = {name.lower() for name, _ in given}
    lines = [f"{method} {path} HTTP/{version}"]
    if "host" not in names:
        lines.append(f"Host: {host}")
    if (body or method == "POST") and not names & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in given]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*chunks: bytes) -> bytes:
    """A body in these chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def until(holds: Callable[[], Any], limit: float = LIMIT_S) -> Any:
    """Wait until a fact about the server holds that nothing announces; it is looked at again and again."""
    for _ in looks(limit):
        if value := holds():
            return value
    raise AssertionError("what was waited for did not come")


def close_connections() -> None:
    """Close whatever is still open on this side."""
    while open_connections:
        open_connections.pop().close()


def resident(server: Process) -> int:
    """The server's resident memory in bytes."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in server.pids) * 4096


def descriptors(server: Process) -> int:
    """How many descriptors the server has open, without its connections to the store: these it opens when it needs them."""
    stores = {f"socket:[{line.split()[6]}]" for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    targets = []
    for descriptor in (each for pid in server.pids for each in Path(f"/proc/{pid}/fd").iterdir()):
        with suppress(FileNotFoundError):  # it was closed meanwhile
            targets.append(str(descriptor.readlink()))
    return sum(target not in stores for target in targets)


def figures(server: Address) -> dict[str, float]:
    """What /metrics says, by name and label: `crewel_errors_total{code="402"}`; of several nodes the sum."""
    ports = getattr(server, "ports", None)
    if ports is not None:
        each = [figures(SimpleNamespace(port=port)) for port in ports]
        return {name: sum(one.get(name, 0.0) for one in each) for name in set().union(*each)}
    with Connection(server) as connection:
        return parse_figures(connection.get("/metrics", {"Connection": "close"}).body)


def parse_figures(exposition: bytes) -> dict[str, float]:
    lines = exposition.decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def readiness(server: Address) -> int:
    """Return the status of `/health/ready`."""
    connection = Connection(server)
    connection.request("GET", "/health/ready")
    return connection.response().status
