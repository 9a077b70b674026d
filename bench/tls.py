"""What TLS costs: deliveries over sockets and long-polling, and connections, plain and encrypted in one interleaved run.

    python bench/tls.py             three rounds of 3 s, written into bench/RESULTS.md (about 3 minutes)
    python bench/tls.py --quick     one round of 1.5 s, printed only

The server runs on the last core and the clients on the first, as in sockets.py. The certificate has a key of P-256, as public
authorities issue them. Costs are processor time of the server.
"""

import asyncio
import dataclasses
import re
import socket
import ssl
import statistics
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import sockets
import trustme
import uvloop
from peers import BUILD, Peer
from section import Section, parser, spread
from servers import Server, raise_file_limit
from socket_peers import everyone
from speakers import Bayeux, Client

HANDSHAKES = 300
_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)", re.IGNORECASE)
_COOKIE = re.compile(rb"\r\nSet-Cookie: ([^;\r]+)", re.IGNORECASE)


class Polling(Bayeux):
    """A long-polling client with one connection, on which it waits."""

    connection_type = b"long-polling"
    polls = True

    async def open(self, port: int) -> "Polling":
        """Connect and log in."""
        loop = asyncio.get_running_loop()
        self._head = b"POST /cometd HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n" % port
        await loop.create_connection(lambda: self, "127.0.0.1", port, ssl=Client.tls)
        await self.log_in()
        return self

    def write(self, payload: bytes, opcode: int = 0) -> None:
        """Send a request."""
        self.transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(payload), payload))

    def data_received(self, data: bytes) -> None:
        """Take the responses apart."""
        data = self._rest + data
        while (end := data.find(b"\r\n\r\n") + 4) > 3:
            assert data.startswith(b"HTTP/1.1 200"), data
            length = _LENGTH.search(data, 0, end)
            assert length is not None, data
            after = end + int(length[1])
            if len(data) < after:
                break
            if cookie := _COOKIE.search(data, 0, end):
                self._head += b"Cookie: %b\r\n" % cookie[1]
            self.received(data[end:after])
            data = data[after:]
        self._rest = data


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, plain and encrypted."""

    title: str
    unit: str
    measure: Callable[[Server, str, float], Awaitable[float]]


async def connections(server: Server, peer: str, seconds: float, *, resumes: bool = False) -> float:
    """µs for each connection with one request; an encrypted one resumes the session of the one before, or does not."""

    def connect(count: int) -> None:
        session = None
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", server.port)) as plain:
                wire = plain
                if Client.tls is not None:
                    wire = Client.tls.wrap_socket(plain, session=session)
                wire.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                answer = b"".join(iter(partial(wire.recv, 4096), b""))
                assert answer.startswith(b"HTTP/1.1 200"), answer
                if isinstance(wire, ssl.SSLSocket):
                    assert wire.session_reused is (session is not None), "the server has not resumed a session"
                    session = wire.session if resumes else None
                    wire.close()

    await asyncio.to_thread(connect, HANDSHAKES // 3)
    begun = sockets.cpu(server)
    await asyncio.to_thread(connect, HANDSHAKES)
    return (sockets.cpu(server) - begun) / HANDSHAKES * 1e6


def _case(name: str, kind: type[Client], *, acknowledges: bool) -> Case:
    async def measure(server: Server, peer: str, seconds: float) -> float:
        sockets.SPEAKERS[peer] = kind
        return await sockets.deliveries(server, peer, seconds, rate=100, acknowledges=acknowledges)

    return Case(f"{name}{', acknowledged' if acknowledges else ''}, 10,000/s", "µs a delivery", measure)


CASES = (
    *(
        _case(name, kind, acknowledges=acknowledges)
        for name, kind in (("sockets", Bayeux), ("long-polling", Polling))
        for acknowledges in (False, True)
    ),
    Case("an idle client on a socket", "KiB", sockets.idle),
    Case("a connection with one request", "µs", connections),
    Case("the same, the TLS session resumed", "µs", partial(connections, resumes=True)),
)


def _peers(directory: Path) -> tuple[tuple[str, Peer, ssl.SSLContext | None], ...]:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    trusted.check_hostname = False  # connections are made to the number
    names = {"tls_cert": directory / "certificate.pem", "tls_key": directory / "key.pem"}
    certificate.private_key_pem.write_to_path(names["tls_key"])
    certificate.cert_chain_pems[0].write_to_path(names["tls_cert"])
    sets = [word for name, path in names.items() for word in ("--set", f"http.{name}={path}")]
    crewel = everyone()["crewel"]
    # The publisher holds no connect, and must outlive a thousand handshakes on a busy machine.
    common = [*crewel.command(), "--set", "bayeux.max_interval_ms=600000"]
    return (
        ("plain", dataclasses.replace(crewel, command=lambda: common), None),
        ("TLS", dataclasses.replace(crewel, command=lambda: [*common, *sets]), trusted),
    )


def main() -> int:
    """Measure and write."""
    options = parser(__doc__, "one short round").parse_args()
    raise_file_limit()
    BUILD.mkdir(exist_ok=True)
    uvloop.install()
    rounds, seconds = (1, 1.5) if options.quick else (3, 3.0)
    figures: dict[tuple[str, str], list[float]] = {}
    trouble = []
    with TemporaryDirectory(dir=BUILD) as directory:
        peers = _peers(Path(directory))
        for number in range(rounds):
            for case in CASES:
                measured = sockets.Case("", case.title, case.unit, (), case.measure)
                for kind, peer, context in peers if number % 2 else reversed(peers):
                    Client.tls = context
                    figure = sockets.run(measured, peer, seconds)
                    print(f"round {number + 1}, {case.title}, {kind}: {figure}", file=sys.stderr, flush=True)
                    if isinstance(figure, str):
                        trouble.append(f"round {number + 1}, {case.title}, {kind}: {figure}")
                    else:
                        figures.setdefault((case.title, kind), []).append(figure)
    Section(
        "tls",
        "What TLS costs",
        f"{rounds} interleaved rounds of {seconds:g} s: medians (in brackets the lowest and the highest); processor time of the"
        f" server. {ssl.OPENSSL_VERSION}.",
        ("what", "plain:", "TLS:", "more:"),
        [_row(case, *(figures.get((case.title, kind), []) for kind in ("plain", "TLS"))) for case in CASES],
        notes=trouble,
    ).publish(is_part=options.quick)
    return 1 if trouble else 0


def _row(case: Case, plain: list[float], encrypted: list[float]) -> tuple[str, ...]:
    more = f"{statistics.median(encrypted) - statistics.median(plain):.1f}" if plain and encrypted else "none"
    return f"{case.title}, {case.unit}", spread(plain), spread(encrypted), more


if __name__ == "__main__":
    sys.exit(main())
