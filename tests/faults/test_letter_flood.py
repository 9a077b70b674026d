"""One request for thousands of absent receivers whose queues are full: each of its messages is a dead letter for each of them.
Others are served meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell, volume
from tests.functional.bayeux import Client, Message
from tests.functional.wire import close_connections, figures
from tests.server_process import Server

MESSAGES, RECEIVERS = volume(400, 40), 2000 if IS_FULL else 100
LETTERS_A_SECOND = 500
"""At least so many, with the machine's other work beside them."""
P99_S = 1.0
MOST_MIB = 500


def publish(client: Client, channel: str, *data: object) -> list[Message]:
    """Publish these, stored, in one request: the replies."""
    ext = {"publish": {"persistent": True}}
    return client.send(*(client.message(channel, data=each, ext=ext) for each in data))


def letters(server: Server) -> float:
    return sum(value for name, value in figures(server).items() if name.startswith("crewel_letters_total"))


def peak_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


@pytest.mark.timeout(120 + MESSAGES * RECEIVERS / LETTERS_A_SECOND)
@pytest.mark.parametrize("messages", [MESSAGES])
def test_others_publish_while_the_letters_of_a_flood_are_stored(
    messages: int, start_server: StartServer, tell: Tell
) -> None:
    server = start_server("bayeux.max_sessions_per_browser=-1", "limits.max_sessions_per_address=0")
    for number in range(RECEIVERS):
        receiver = Client(server)
        receiver.handshake(ext={"ack": True, "session": {"name": f"joe{number}/1", "queue": {"maxEntries": 1}}})
        receiver.subscribe("/flood")
        receiver.command.close()
    publisher, other = Client(server), Client(server)
    publisher.handshake()
    other.handshake()
    publish(publisher, "/flood", "fills the queues")
    began = time.monotonic()
    replies = publish(publisher, "/flood", *range(messages))
    answered = time.monotonic() - began
    assert all(each["successful"] for each in replies), replies[-1]
    wanted, took = messages * RECEIVERS, []
    limit = began + 30 + wanted / LETTERS_A_SECOND
    while letters(server) < wanted and time.monotonic() < limit:
        asked = time.monotonic()
        (reply,) = publish(other, "/other", len(took))
        assert reply["successful"], reply
        took.append(time.monotonic() - asked)
        time.sleep(0.05)
    stored = time.monotonic() - began
    assert letters(server) == wanted
    p99 = sorted(took)[int(len(took) * 0.99)]
    close_connections()
    tell(
        f"{messages} messages to {RECEIVERS} full queues: answered in {answered:.1f} s, {wanted} letters stored"
        f" in {stored:.0f} s;"
        f" meanwhile {len(took)} publishes of another client, p99 {p99 * 1000:.0f} ms, the longest {max(took) * 1000:.0f} ms;"
        f" the server's memory {peak_mib(server.pid)} MiB at most"
    )
    assert p99 < P99_S
    assert peak_mib(server.pid) < MOST_MIB
