"""What is asked of a server: the cases, and the figures that each one gives."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

Result = dict[str, Any]
Figures = dict[str, float | None]

SUSTAINED_P99_MS = 200.0
QUICK_P99_MS = 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """One load, as options of the meter, and what is read from its answer.

    `columns` are the figures of the report in order, the first is the one that ratios are
    made of. `seconds` scales with `--seconds`; a hold or a storm takes its own time.
    """

    letter: str
    title: str
    question: str
    options: dict[str, str]
    columns: tuple[str, ...]
    figures: Callable[[Result], Figures]
    websocket: bool = False
    ack: bool = False
    stores: bool = False
    """Whether each message is stored before its publisher has a reply."""


COLUMN_TITLES = {
    "cpu_us": "CPU µs per delivery",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "max_ms": "max ms",
    "deliveries_per_s": "deliveries/s",
    "server_cores": "cores in use",
    "per_response": "deliveries per response",
    "lost": "lost",
    "duplicates": "twice",
    "sustained_per_s": "sustained deliveries/s",
    "p99_at_30000_ms": "p99 ms at 30,000/s",
    "kib": "KiB per held connect",
    "empty_mib": "MiB when empty",
    "idle_cores": "idle CPU, cores",
    "clients_per_s": "clients/s",
    "errors": "errors",
}


def _errors(result: Result) -> float:
    missing = result["clients"]["wanted"] - result["clients"]["settled"]
    return float(sum(result["errors"].values()) + missing + bool(result["timed_out"]))


def _delivery(result: Result) -> Figures:
    step = result["steps"][0]
    return {
        "cpu_us": step["cpu_us_per_delivery"],
        "p50_ms": step["latency_ms"]["p50"],
        "p99_ms": step["latency_ms"]["p99"],
        "max_ms": step["latency_ms"]["max"],
        "deliveries_per_s": step["deliver_per_s"],
        "server_cores": step["server_cores"],
        "per_response": step["deliver_per_s"] / step["polls_per_s"] if step["polls_per_s"] > 100 else None,
        "lost": sum(s["lost"] for s in result["steps"]),
        "duplicates": sum(s["duplicates"] for s in result["steps"]),
        "errors": _errors(result),
    }


def _sweep(result: Result, within_ms: float = SUSTAINED_P99_MS) -> Figures:
    held = [s for s in result["steps"] if s["latency_ms"]["p99"] < within_ms and not s["lost"]]
    at_target = [s["latency_ms"]["p99"] for s in result["steps"] if s["rate"] == 300]
    return _delivery(result) | {
        "sustained_per_s": max((s["deliver_per_s"] for s in held), default=0.0),
        "p99_at_30000_ms": at_target[0] if at_target else None,
        # A step beyond what a server can do may lose messages: that ends the sweep and is no fault.
        "lost": sum(s["lost"] for s in held),
    }


def _quick(letter: str, what: str, **kind: bool) -> Case:
    """How far one core can be pushed with short latencies. The first step is one that every server can do."""
    rates = "100,200,300,400,500,600,700,800,1000"
    return Case(
        letter,
        f"{what}, p99 below {QUICK_P99_MS:g} ms: 1,000 clients in 10 rooms, 100 messages/s of 64 bytes and rising",
        "How many deliveries a second does one core make while 99 of 100 take less than 10 ms?",
        _ROOMS | {"rates": rates, "stop-p99-ms": str(QUICK_P99_MS)},
        ("sustained_per_s", "cpu_us", "p99_ms", "per_response", "lost", "duplicates", "errors"),
        partial(_sweep, within_ms=QUICK_P99_MS),
        **kind,
    )


def _held(result: Result) -> Figures:
    held = result["held"]
    return {
        "kib": held["kib_per_connect"],
        "empty_mib": held["empty_kib"] / 1024,
        "idle_cores": held["idle_cores"],
        "errors": _errors(result),
    }


def _storm(result: Result) -> Figures:
    storm = result["storm"]
    return {
        "cpu_us": storm["cpu_us_per_client"],
        "clients_per_s": storm["clients_per_s"],
        "errors": _errors(result),
    }


_LATENCY = (
    *("cpu_us", "p50_ms", "p99_ms", "max_ms", "deliveries_per_s", "server_cores", "per_response"),
    *("lost", "duplicates", "errors"),
)
_ROOMS = {"mode": "deliver", "clients": "1000", "rooms": "10", "payload": "64"}

CASES = (
    Case(
        "A",
        "Long-polling: 1,000 clients in 10 rooms, 100 messages/s of 64 bytes",
        "What does a delivery cost over plain HTTP?",
        _ROOMS | {"rates": "100"},
        _LATENCY,
        _delivery,
    ),
    Case(
        "B",
        "Long-polling with acknowledgement: 1,000 clients in 10 rooms, 200 messages/s of 64 bytes",
        "What does it cost when nothing may be lost, at 20,000 deliveries/s?",
        _ROOMS | {"rates": "200"},
        _LATENCY,
        _delivery,
        ack=True,
    ),
    Case(
        "C",
        "WebSocket: 1,000 clients in 10 rooms, 200 messages/s of 64 bytes",
        "What does a delivery cost without HTTP around it?",
        _ROOMS | {"rates": "200"},
        _LATENCY,
        _delivery,
        websocket=True,
    ),
    Case(
        "D",
        "CometD's reference shape: 1,000 clients, 100 rooms, 10 rooms a client, 50 bytes, 150 messages/s and rising",
        "How many deliveries a second does one core sustain with a p99 below 200 ms?",
        {
            "mode": "deliver",
            "clients": "1000",
            "rooms": "100",
            "rooms-per-client": "10",
            "payload": "50",
            "rates": "150,200,250,300,400,500",
            "stop-p99-ms": str(SUSTAINED_P99_MS),
        },
        (
            "cpu_us",
            "p50_ms",
            "p99_ms",
            "per_response",
            "sustained_per_s",
            "p99_at_30000_ms",
            "lost",
            "duplicates",
            "errors",
        ),
        _sweep,
    ),
    Case(
        "E",
        "Publishing: 100 clients in 100 rooms, 2,000 messages/s of 64 bytes, one receiver each",
        "What does a message cost, publish and delivery together?",
        {
            "mode": "deliver",
            "clients": "100",
            "rooms": "100",
            "publishers": "64",
            "payload": "64",
            "rates": "2000",
        },
        _LATENCY,
        _delivery,
    ),
    Case(
        "F",
        "Holding: 10,000 clients with a held connect, no messages",
        "What does an idle client cost in memory?",
        {"mode": "hold", "clients": "10000", "rooms": "100"},
        ("kib", "empty_mib", "idle_cores", "errors"),
        _held,
    ),
    Case(
        "G",
        "Handshake storm: 8,000 clients connect, handshake and subscribe, 64 at a time",
        "What does it cost to let a client in?",
        {"mode": "storm", "clients": "8000", "rooms": "100"},
        ("cpu_us", "clients_per_s", "errors"),
        _storm,
    ),
    _quick("H", "Long-polling"),
    _quick("I", "WebSocket", websocket=True),
    _quick("J", "Long-polling, acknowledged", ack=True),
    _quick("K", "Long-polling, stored and acknowledged", ack=True, stores=True),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What must hold for Crewel: a figure, or its ratio to a peer's, at most (or at least) so much."""

    case: str
    figure: str
    limit: float
    peer: str = ""
    at_least: bool = False


TARGETS = (
    Target("A", "cpu_us", 1.35, "floor"),
    Target("A", "cpu_us", 0.45, "faye"),
    Target("A", "cpu_us", 0.40, "cometd-nodejs"),
    Target("A", "cpu_us", 0.55, "cometd-java"),
    Target("B", "cpu_us", 1.35, "floor"),
    Target("B", "cpu_us", 0.45, "faye"),
    Target("B", "cpu_us", 0.40, "cometd-nodejs"),
    Target("B", "cpu_us", 0.55, "cometd-java"),
    Target("B", "p99_ms", 10.0),
    Target("B", "p99_ms", 1.0, "faye"),
    Target("B", "p99_ms", 1.0, "cometd-nodejs"),
    Target("B", "p99_ms", 1.0, "cometd-java"),
    Target("B", "lost", 0.0),
    Target("B", "duplicates", 0.0),
    Target("C", "cpu_us", 0.60, "faye"),
    Target("D", "sustained_per_s", 30_000.0, at_least=True),
    Target("D", "p99_at_30000_ms", 200.0),
    Target("D", "cpu_us", 0.45, "faye"),
    Target("D", "cpu_us", 0.55, "cometd-java"),
    Target("E", "cpu_us", 0.45, "faye"),
    Target("E", "cpu_us", 0.60, "cometd-java"),
    Target("F", "kib", 8.0),
    Target("G", "cpu_us", 0.35, "faye"),
    Target("G", "cpu_us", 0.70, "cometd-java"),
    Target("H", "sustained_per_s", 40_000.0, at_least=True),
    Target("H", "sustained_per_s", 2.0, "faye", at_least=True),
    Target("H", "sustained_per_s", 2.0, "cometd-java", at_least=True),
    Target("I", "sustained_per_s", 60_000.0, at_least=True),
    Target("I", "sustained_per_s", 1.25, "faye", at_least=True),
    Target("J", "sustained_per_s", 40_000.0, at_least=True),
    Target("J", "sustained_per_s", 2.0, "cometd-java", at_least=True),
    Target("K", "sustained_per_s", 20_000.0, at_least=True),
    Target("K", "lost", 0.0),
    Target("K", "duplicates", 0.0),
)
