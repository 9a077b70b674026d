"""What it costs that connections reach a worker without their session, beside another state of the code.

    python bench/misplaced.py --before DIRECTORY            medians of 5, written into bench/RESULTS.md (about 6 minutes)
    python bench/misplaced.py --before DIRECTORY --quick    one short round, printed only

Two workers of each state run at the same time, each pair with a store, an nginx and a HAProxy of its own, and are asked in
turn. Half of the clients are misplaced: one worker has the session, the other one accepts the connection, as it does when a
client comes back, or opens a second connection. A proxy mixes the requests of long-polling clients over its own connections.
Costs are processor time of the parent and its workers; the store's and the proxy's are not in them.
"""

import asyncio
import json
import os
import re
import signal
import socket
import statistics
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Final, NamedTuple
from urllib.request import urlopen

import uvloop
from section import Section, parser, spread
from servers import raise_file_limit
from speakers import Bayeux
from waiting import Connection
from workers import cpu

RECEIVERS, STORM, AT_ONCE = 100, 200, 32
RATES = (5, 15)
"""Messages a second, each to all receivers of one way."""
PLACED = (("websocket", "direct"), ("websocket", "nginx"), ("websocket", "HAProxy"), ("long-polling", "direct"))
"""Each client has a connection to a worker. They come first: later ones might get a connection that a proxy has kept."""
MIXED = (("long-polling", "nginx"), ("long-polling", "nginx, no keep-alive"), ("long-polling", "HAProxy"))
WAYS = PLACED + MIXED
ENTRIES = ("direct", "nginx", "nginx, no keep-alive", "HAProxy")
SETS = (
    "cluster.workers=2",
    "cluster.lease_ms=60000",
    "bayeux.max_sessions_per_browser=-1",
    "bayeux.max_interval_ms=3600000",
    "bayeux.timeout_ms=3600000",
    "http.keepalive_ms=3600000",
    "http.trusted_proxies=127.0.0.1",
)
_NUMBER: Final = re.compile(rb'"n":(\d+)')
_ACK: Final = re.compile(rb'"ack":(\d+)')
_PSS: Final = re.compile(r"^Pss: +(\d+)", re.MULTILINE)
_MOVED: Final = re.compile(rb"^crewel_connections_moved_total\S* (\S+)", re.MULTILINE)
_FORWARDED: Final = re.compile(rb"^crewel_forwarded_total\S* (\S+)", re.MULTILINE)
_LIMIT_S: Final = 30.0
_NGINX: Final = """daemon off; pid {directory}/nginx.pid; error_log stderr; worker_processes 1;
events {{ worker_connections 8192; }}
http {{
    access_log off; keepalive_timeout 2h; keepalive_requests 1000000;
    {temporary}
    map $http_upgrade $kept {{ default upgrade; '' ''; }}
    map $http_upgrade $closed {{ default upgrade; '' close; }}
    upstream kept {{ server 127.0.0.1:{port}; keepalive 64; }}
    upstream closed {{ server 127.0.0.1:{port}; }}
    proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 2h;
    server {{
        listen 127.0.0.1:{first};
        location / {{ proxy_pass http://kept; {headers} proxy_set_header Connection $kept; }}
    }}
    server {{
        listen 127.0.0.1:{second};
        location / {{ proxy_pass http://closed; {headers} proxy_set_header Connection $closed; }}
    }}
}}
"""
_HEADERS: Final = {
    "Host": "$host",
    "X-Forwarded-For": "$remote_addr",
    "X-Forwarded-Host": "$http_host",
    "X-Forwarded-Proto": "$scheme",
    "Upgrade": "$http_upgrade",
}
_HAPROXY: Final = """defaults
    mode http
    timeout connect 5s
    timeout client 2h
    timeout server 2h
    timeout tunnel 2h
frontend web
    bind 127.0.0.1:{first}
    http-request del-header X-Forwarded-For
    option forwardfor
    default_backend crewel
backend crewel
    option httpchk GET /health/ready
    server crewel 127.0.0.1:{port} check
"""
"""Both as docs/how-to/proxies.md has them, without TLS, and with patience."""


class Ledger:
    """When each message was sent, and how long each delivery took."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}
        self.times: list[float] = []

    def take(self, payload: bytes) -> None:
        """Count the messages in it."""
        now = perf_counter()
        self.times += [now - self.sent[int(each)] for each in _NUMBER.findall(payload)]


class Socket(Bayeux):
    """A socket of a session that exists."""

    def __init__(self, client_id: bytes, cookie: bytes, ledger: Ledger | None = None) -> None:
        super().__init__(acknowledges=True)
        self.headers = f"Cookie: {cookie.decode()}\r\n"  # type: ignore[misc]  # each has its own
        self._id, self._ledger = client_id, ledger
        self._connect = b'[{"channel":"/meta/connect","connectionType":"websocket","clientId":"%b"' % client_id

    async def log_in(self) -> None:
        """It is logged in."""

    def received(self, payload: bytes) -> None:
        if self._ledger is not None:
            self._ledger.take(payload)
            super().received(payload)
        elif b'"/meta/connect"' in payload:
            self._answered(payload)  # it does not hold a connect


class Poller:
    """A connection of a session that exists."""

    def __init__(self, client_id: bytes, connection: Connection, ledger: Ledger | None = None) -> None:
        self.connection, self._id, self._ledger = connection, client_id, ledger
        self._connect = b'[{"channel":"/meta/connect","connectionType":"long-polling","clientId":"%b"' % client_id

    async def subscribe(self, room: str) -> None:
        """Receive the room."""
        answer = await self.connection.post(
            b'[{"channel":"/meta/subscribe","subscription":"/%b","clientId":"%b","id":"2"},%b,"id":"3","advice":{"timeout":0},'
            b'"ext":{"ack":0}}]' % (room.encode(), self._id, self._connect[1:])
        )
        assert answer.count(b'"successful":true') == 2, answer

    async def poll(self) -> None:
        """Take what comes, until cancelled."""
        assert self._ledger is not None
        ack = b"1"
        for number in count(4):
            body = await self.connection.post(b'%b,"id":"%d","ext":{"ack":%b}}]' % (self._connect, number, ack))
            self._ledger.take(body)
            found = _ACK.search(body)
            assert found is not None, body
            ack = found[1]


class Room(NamedTuple):
    """The receivers that come in one way."""

    channel: bytes
    ledger: Ledger


class Came(NamedTuple):
    """What one measurement gave."""

    cost: float
    """Microseconds of the processor for one delivery, or one client."""
    times: list[float]
    """Seconds that each took."""


class Arm:
    """Two workers of one state, with their proxies and clients."""

    def __init__(self, parent: int, ports: dict[str, int]) -> None:
        """`ports` by entry."""
        children = _children(parent)
        self.workers = sorted(pid for pid, name in children.items() if "--inherited" in name)
        self._processes = [parent, *self.workers]
        self._ports = ports
        self._homes: list[Connection] = []
        """A connection to each worker."""
        self._publisher = b""
        self._rooms: dict[tuple[str, str], Room] = {}
        self._clients: list[Socket | Poller] = []
        self._polling: list[asyncio.Task[None]] = []
        self._numbers = count(1)

    async def fill(self) -> None:
        """Let all receivers come."""
        for number in (0, 1):
            with self._only(number):
                self._homes.append(await self._connected("direct"))
                await self._logged_in(number)  # the connection is accepted
        self._publisher = await self._logged_in(0)
        for number, way in enumerate(WAYS):
            room = self._rooms[way] = Room(b"bench/%d" % number, Ledger())
            await self._receive(way, room)

    async def end(self) -> None:
        """Let all go."""
        for client in self._clients:
            (client.connection if isinstance(client, Poller) else client).transport.abort()
        for task in self._polling:
            task.cancel()
        await asyncio.gather(*self._polling, return_exceptions=True)

    @contextmanager
    def _only(self, number: int) -> Iterator[None]:
        """Connections that are opened in here are accepted by this worker: the other one is stopped."""
        other = self.workers[1 - number]
        os.kill(other, signal.SIGSTOP)
        try:
            while Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                sleep(0.001)
            yield
        finally:
            os.kill(other, signal.SIGCONT)

    async def _connected(self, entry: str) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._ports[entry])
        return connection

    async def _logged_in(self, number: int) -> bytes:
        """A session of this worker."""
        return await _log_in(self._homes[number])

    async def _receive(self, way: tuple[str, str], room: Room) -> None:
        """Let receivers come: half of them have their session at each worker, and half of those are misplaced."""
        transport, entry = way
        sessions = [(each % 2, await self._logged_in(each % 2)) for each in range(RECEIVERS)]
        clients: list[Socket | Poller] = []
        places = [(home + each // 2) % 2 for each, (home, _) in enumerate(sessions)]
        for number in (0, 1):
            with self._only(number) if way in PLACED else nullcontext():
                for place, (home, session) in zip(places, sessions, strict=True):
                    if place == number:
                        cookie = self._homes[home].cookie
                        clients.append(await self._opened(transport, entry, session, cookie, room.ledger))
        self._clients += clients
        for client in clients:
            await client.subscribe(room.channel.decode())
            if isinstance(client, Poller):
                self._polling.append(asyncio.create_task(client.poll()))

    async def _opened(
        self, transport: str, entry: str, session: bytes, cookie: bytes, ledger: Ledger | None = None
    ) -> "Socket | Poller":
        if transport == "websocket":
            return await Socket(session, cookie, ledger).open(self._ports[entry])
        connection = await self._connected(entry)
        connection.cookie = cookie
        if ledger is not None:
            await _log_in(connection)  # the worker has accepted it
            connection.cookie = cookie
        return Poller(session, connection, ledger)

    async def deliver(self, way: tuple[str, str], rate: int, seconds: float) -> Came:
        """Publish to all receivers of this way at this rate."""
        channel, ledger = self._rooms[way]
        ledger.sent.clear()
        ledger.times = []
        before, begun, messages = cpu(self._processes), perf_counter(), round(rate * seconds)
        for each in range(messages):
            await asyncio.sleep(max(0.0, begun + each / rate - perf_counter()))
            number = next(self._numbers)
            ledger.sent[number] = perf_counter()
            answer = await self._homes[0].post(
                b'[{"channel":"/%b","data":{"n":%d,"text":"%b"},"clientId":"%b","id":"%d"}]'
                % (channel, number, b"x" * 40, self._publisher, number)
            )
            assert b'"successful":true' in answer, answer
        wanted = messages * RECEIVERS
        while len(ledger.times) < wanted:
            assert perf_counter() - begun < _LIMIT_S, f"{len(ledger.times)} of {wanted} came"
            await asyncio.sleep(0.005)
        await asyncio.sleep(max(0.05, begun + seconds - perf_counter()))  # the next connects have come
        assert len(ledger.times) == wanted, "something came twice"
        return Came((cpu(self._processes) - before) / wanted * 1e6, ledger.times)

    async def storm(self, way: tuple[str, str], count: int) -> Came:
        """Let so many clients log in, some at once, each with a second connection after the handshake."""
        transport, entry = way
        left, times = iter(range(count)), list[float]()
        came: list[tuple[Socket | Poller, bytes, bytes]] = []

        async def clients() -> None:
            for _ in left:
                begun = perf_counter()
                first = await self._connected(entry)
                session = await _log_in(first)
                second = await self._opened(transport, entry, session, first.cookie)
                first.transport.close()
                await second.subscribe("bench/none")
                times.append(perf_counter() - begun)
                came.append((second, session, first.cookie))

        before = cpu(self._processes)
        await asyncio.gather(*(clients() for _ in range(AT_ONCE)))
        cost = (cpu(self._processes) - before) / count * 1e6
        for each, session, cookie in came:
            await self._log_out(session, cookie)
            (each.connection if isinstance(each, Poller) else each).transport.close()
        return Came(cost, times)

    def stand(self) -> str:
        """What all that has taken so far: memory, and which way requests took."""
        rollups = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.workers)
        memory = sum(int(kib) for each in rollups for kib in _PSS.findall(each)) / 1024
        with urlopen(f"http://127.0.0.1:{self._ports['direct']}/metrics", timeout=_LIMIT_S) as answer:
            figures = answer.read()
        moved, forwarded = (sum(map(float, each.findall(figures))) for each in (_MOVED, _FORWARDED))
        return f"{memory:.1f} MiB, {moved:,.0f} connections moved, {forwarded:,.0f} requests forwarded"

    async def _log_out(self, session: bytes, cookie: bytes) -> None:
        home = self._homes[0]
        own, home.cookie = home.cookie, cookie
        answer = await home.post(b'[{"channel":"/meta/disconnect","clientId":"%b","id":"9"}]' % session)
        home.cookie = own
        assert b'"successful":true' in answer, answer


async def _log_in(connection: Connection) -> bytes:
    (reply,) = json.loads(
        await connection.post(
            b'[{"channel":"/meta/handshake","id":"1","version":"1.0",'
            b'"supportedConnectionTypes":["long-polling","websocket"],"ext":{"ack":true}}]'
        )
    )
    assert reply["successful"], reply
    client_id: str = reply["clientId"]
    return client_id.encode()


# Processes


def _children(pid: int) -> dict[int, str]:
    """The processes that this one has started, with their command lines."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(each): Path(f"/proc/{each}/cmdline").read_text() for each in found}


def _free_ports(wanted: int) -> list[int]:
    with ExitStack() as stack:
        made = [stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(wanted)]
        return [each.getsockname()[1] for each in made]


@asynccontextmanager
async def _running(*command: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@asynccontextmanager
async def serving(state: Path | None) -> AsyncIterator[Arm]:
    """Two workers of this state (None: this one) with their proxies and clients."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory())
        sets = [f"--set={each}" for each in (f"storage.data_dir={directory}/data", *SETS)]
        earlier = {} if state is None else {"PYTHONPATH": str(state / "app")}
        command = [sys.executable, "-m", "crewel", "serve", "--port", "0", *sets]
        process = await stack.enter_async_context(_running(*command, **earlier))
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        port = int(line.rpartition(":")[2].partition("/")[0])
        kept, closed, haproxy = _free_ports(3)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
        site, rules = Path(directory, "nginx.conf"), Path(directory, "haproxy.cfg")
        headers = " ".join(f"proxy_set_header {name} {value};" for name, value in _HEADERS.items())
        places = {"directory": directory, "temporary": temporary, "headers": headers}
        site.write_text(_NGINX.format(port=port, first=kept, second=closed, **places))
        rules.write_text(_HAPROXY.format(port=port, first=haproxy))
        await stack.enter_async_context(_running("nginx", "-c", str(site), "-p", directory, "-e", "stderr"))
        await stack.enter_async_context(_running("haproxy", "-f", str(rules)))
        for each in (kept, closed, haproxy):
            await _listens(each)
        arm = Arm(process.pid, dict(zip(ENTRIES, (port, kept, closed, haproxy), strict=True)))
        await arm.fill()
        try:
            yield arm
        finally:
            await arm.end()


# The measurement

Question = tuple[tuple[str, str], int]
"""The way, and the rate; 0: clients that log in."""


async def measure(
    states: list[Path | None], rounds: int, seconds: float, clients: int
) -> tuple[dict[Question, list[list[Came]]], list[str]]:
    """For each question what each state gave, by round; and how each of them stands at the end."""
    found: dict[Question, list[list[Came]]] = {}
    async with AsyncExitStack() as stack:
        arms = [await stack.enter_async_context(serving(state)) for state in states]
        asked = [(way, rate) for way in WAYS for rate in (*RATES, 0)]
        for number in range(-1, rounds):  # the first one warms
            for way, rate in asked:
                for which in range(len(arms)) if number % 2 else reversed(range(len(arms))):
                    arm = arms[which]
                    came = await (arm.deliver(way, rate, seconds) if rate else arm.storm(way, clients))
                    if number >= 0:
                        found.setdefault((way, rate), [[] for _ in arms])[which].append(came)
        return found, [await asyncio.to_thread(arm.stand) for arm in arms]


def report(
    found: dict[Question, list[list[Came]]], stand: list[str], rounds: int, seconds: float, clients: int
) -> Section:
    """The section of bench/RESULTS.md."""
    rows = []
    for ((transport, entry), rate), states in found.items():
        then, now = states
        ratio = statistics.median(b.cost / a.cost for a, b in zip(then, now, strict=True))
        title = f"{rate * RECEIVERS:,} deliveries/s" if rate else "log-ins"
        late = [f"{_quantile(then, part)} / {_quantile(now, part)}" for part in (0.5, 0.99)]
        costs = [spread([each.cost for each in state]) for state in states]
        rows.append((f"{transport}, {entry}", title, *costs, f"{ratio:.2f}", *late))
    return Section(
        "misplaced",
        "Connections at another worker",
        f"two workers with {RECEIVERS} receivers for each way, of which half are at the worker without their session; and"
        f" {clients} clients that log in, {AT_ONCE} at once, with a second connection after the handshake. CPU µs of the parent"
        f" and the workers for a delivery, or a client; latencies in ms, before / now. Medians of {rounds} interleaved rounds"
        f" of {seconds:g} s (in brackets the lowest and the highest).",
        ("way", "of what", "before:", "now:", "ratio:", "p50:", "p99:"),
        rows,
        conclusion=f"Both workers with all receivers, before: {stand[0]}; now: {stand[1]}.",
    )


def _quantile(state: list[Came], part: float) -> str:
    """In milliseconds, the median of the rounds."""
    ranked = [sorted(each.times) for each in state]
    return f"{statistics.median(each[int(part * (len(each) - 1))] for each in ranked) * 1e3:.1f}"


def main() -> None:
    """Measure and write."""
    asked = parser(__doc__, "one short round")
    asked.add_argument("--before", type=Path, required=True, metavar="DIRECTORY", help="a checkout of the other state")
    options = asked.parse_args()
    raise_file_limit()
    uvloop.install()
    given = (1, 0.4, 40) if options.quick else (5, 1.2, STORM)
    found, stand = asyncio.run(measure([options.before.resolve(), None], *given))
    report(found, stand, *given).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
