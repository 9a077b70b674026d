"""A client that was away asks for what it has missed, by the position that it was told: it gets all of it in order, or hears
that something is missing and gets nothing old."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.admin.desk import TOKEN, Desk
from tests.faults.audit import store_of
from tests.functional.bayeux import Client, Message, data
from tests.functional.conftest import Serve, one_lane
from tests.functional.people import Person
from tests.functional.topic import read
from tests.functional.wire import Address, until
from tests.server_process import Server

pytestmark = one_lane

MISSED = 2_100
"""More than any step of the server reads, or commits, at once."""
MANY = 600
AT_ONCE = 250
SETS = (f"admin.token={TOKEN}", "bayeux.timeout_ms=2000", "bayeux.sweep_ms=50")
Position = dict[str, dict[str, str]]

_numbers = itertools.count(1)


class Reader(Person):
    """A reliable session with a queue that is large enough for what it has missed."""

    def __init__(self, server: Address) -> None:
        super().__init__(server)
        self.early: list[Message] = []
        """What has come together with the answer to a subscribe."""

    def start_reading(self) -> Reader:
        """Shake hands."""
        self.be(queue={"maxEntries": MISSED})
        return self

    def recover(self, channel: str, **asked: Any) -> Message:
        """What the reply to a subscribe tells in `ext.subscribe`."""
        ext = {"subscribe": asked}
        answer = self.send(self.message("/meta/subscribe", subscription=channel, ext=ext))
        (reply,) = [each for each in answer if "subscription" in each]
        assert reply["successful"] is True, reply
        self.early += [each for each in answer if "data" in each]
        told: Message = reply["ext"]["subscribe"]
        return told


class Plain(Reader):
    """A session without acknowledgements, as a stock client has it."""

    acknowledges = False


@pytest.fixture(params=[Plain, Reader], ids=["plain", "reliable"])
def make(request: pytest.FixtureRequest) -> type[Reader]:
    """Who comes back: reliable sessions need no positions, and may use them."""
    found: type[Reader] = request.param
    return found


@pytest.fixture
def server(shared: Serve) -> Server:
    return shared(*SETS)


@pytest.fixture
def channel() -> str:
    return f"/recovery/{next(_numbers)}"


def publish(server: Server, channel: str, numbers: range, *, history: int) -> None:
    """Publish these numbers to a topic that keeps so many."""
    ext = {"publish": {"history": {"maxEntries": history}}}
    writer = Client(server).start()
    for first in range(0, len(numbers), AT_ONCE):
        some = numbers[first : first + AT_ONCE]
        replies = writer.send(*(writer.message(channel, data=number, ext=ext) for number in some))
        assert all(reply["successful"] for reply in replies if "successful" in reply), replies[-1]
    writer.disconnect()


def leave(server: Server, make: type[Reader], channel: str) -> Position:
    """Be there once, and go; the position that was told."""
    client = make(server).start_reading()
    position: Position = client.recover(channel, initialUpdate=False)["position"]
    assert position.keys() == {channel}
    client.disconnect()
    return position


def test_all_that_was_missed_comes_in_order(server: Server, make: type[Reader], channel: str) -> None:
    publish(server, channel, range(5), history=2 * MISSED)
    position = leave(server, make, channel)
    publish(server, channel, range(5, MISSED), history=2 * MISSED)
    client = make(server).start_reading()
    assert client.recover(channel, since=position)["recovered"] is True
    messages = _all(client, MISSED - 5)
    assert data(messages) == list(range(5, MISSED))
    assert not [message for message in messages if message.get("ext", {}).get("update", {}).get("initial")]


def test_what_is_published_meanwhile_follows_without_a_gap_and_without_a_repeat(
    server: Server, make: type[Reader], channel: str
) -> None:
    publish(server, channel, range(5), history=2 * MISSED)
    position = leave(server, make, channel)
    published, has_recovered = [5], threading.Event()

    def publish_meanwhile() -> None:
        while not (has_recovered.is_set() and published[0] > MANY):
            some = range(published[0], published[0] + 60)
            publish(server, channel, some, history=2 * MISSED)
            published[0] = some.stop

    publishing = threading.Thread(target=publish_meanwhile)
    publishing.start()
    until(lambda: _newest(server, channel) > 100)
    client = make(server).start_reading()
    assert client.recover(channel, since=position)["recovered"] is True
    has_recovered.set()
    publishing.join()
    assert data(_all(client, published[0] - 5)) == list(range(5, published[0]))


def test_the_last_position_goes_on_where_it_was(server: Server, make: type[Reader], channel: str) -> None:
    """Nothing missed is nothing to send, and still all of it; and a position may be used again."""
    publish(server, channel, range(3), history=10)
    position = leave(server, make, channel)
    client = make(server).start_reading()
    told = client.recover(channel, since=position)
    assert (told["recovered"], told["position"]) == (True, position)
    publish(server, channel, range(3, 5), history=10)
    assert data(_all(client, 2)) == [3, 4]
    again = make(server).start_reading()
    assert again.recover(channel, since=position)["recovered"] is True
    assert data(_all(again, 2)) == [3, 4]


def test_what_the_history_has_lost_is_told_and_nothing_old_comes(
    server: Server, make: type[Reader], channel: str
) -> None:
    publish(server, channel, range(5), history=50)
    position = leave(server, make, channel)
    publish(server, channel, range(5, 120), history=50)
    client = make(server).start_reading()
    told = client.recover(channel, since=position)
    assert told["recovered"] is False
    assert int(told["position"][channel]["id"]) > int(position[channel]["id"])
    publish(server, channel, range(120, 121), history=50)
    assert data(_all(client, 1)) == [120]


def _erase(server: Server, channel: str) -> None:
    assert Desk(server).ask("DELETE", f"/topics{channel}?force=true").status == 200


def _clear(server: Server, channel: str) -> None:
    Desk(server).cmd(f"__cmd:topic{channel}/?clearHistoryQueue")


def _delete(server: Server, channel: str) -> None:
    """As somebody with a hand in the store might."""
    prefix = next(text.partition("=")[2] for text in server.store_sets if text.startswith("storage.prefix="))
    with store_of(server) as store:
        assert store.delete(f"{prefix}{{crewel}}:h:{channel}") == 1


@pytest.mark.parametrize("lose", [_erase, _clear, _delete], ids=["erased", "cleared", "deleted in the store"])
def test_a_stream_that_was_deleted_meanwhile_is_told(
    server: Server, make: type[Reader], channel: str, lose: Callable[[Server, str], None]
) -> None:
    publish(server, channel, range(5), history=100)
    position = leave(server, make, channel)
    publish(server, channel, range(5, 10), history=100)
    lose(server, channel)
    client = make(server).start_reading()
    assert client.recover(channel, since=position)["recovered"] is False
    publish(server, channel, range(10, 12), history=100)
    assert data(_all(client, 2)) == [10, 11]
    another = make(server).start_reading()
    assert another.recover(channel, since=position)["recovered"] is False
    if lose is not _delete:
        with_id = {channel: {**position[channel], "id": _newest_id(server, channel)}}
        assert (
            make(server).start_reading().recover(channel, since=with_id)["recovered"] is False
        )  # the epoch is another


def test_what_a_queue_cannot_take_is_not_recovered_in_part(server: Server, channel: str) -> None:
    publish(server, channel, range(5), history=100)
    position = leave(server, Reader, channel)
    publish(server, channel, range(5, 50), history=100)
    client = Reader(server)
    client.be(queue={"maxEntries": 20})
    assert client.recover(channel, since=position)["recovered"] is False
    publish(server, channel, range(50, 51), history=100)
    assert data(_all(client, 1)) == [50]


def test_a_topic_without_history_recovers_nothing(server: Server, make: type[Reader], channel: str) -> None:
    client = make(server).start_reading()
    assert client.recover(channel, since={channel: {"epoch": "none", "id": "1"}})["recovered"] is False


def test_a_wildcard_has_no_position(server: Server, make: type[Reader], channel: str) -> None:
    client = make(server).start_reading()
    asked = {"subscribe": {"since": {channel: {"epoch": "none", "id": "1"}}}}
    reply = client.send(client.message("/meta/subscribe", subscription="/recovery/*", ext=asked))[-1]
    assert reply["successful"] is False
    assert reply["error"].startswith("400:")


def test_positions_survive_the_server(serve: Serve, make: type[Reader], channel: str) -> None:
    server = serve(*SETS)
    publish(server, channel, range(5), history=100)
    position = leave(server, make, channel)
    publish(server, channel, range(5, 50), history=100)
    server.kill()
    server = serve(*SETS, *server.store_sets, port=server.port)
    publish(server, channel, range(50, 60), history=100)
    client = make(server).start_reading()
    assert client.recover(channel, since=position)["recovered"] is True
    assert data(_all(client, 55)) == list(range(5, 60))


def _all(client: Reader, count: int) -> list[Message]:
    """The next so many messages, and no more."""
    found, client.early = client.early, []

    def are_there() -> bool:
        found.extend(client.take(timeout=100))
        return len(found) >= count

    until(are_there, 30)
    found += client.take()
    assert len(found) == count, (len(found), data(found)[-5:])
    return found


def _newest(server: Server, channel: str) -> int:
    """The newest number of the history."""
    messages = _get(server, channel)
    return messages[0]["data"] if messages else -1


def _newest_id(server: Server, channel: str) -> str:
    message_id: str = _get(server, channel)[0]["id"]
    return message_id


def _get(server: Server, channel: str) -> list[Message]:
    reader = Person(server).be()
    messages = read(reader, channel, 1, newest_first=True)
    reader.disconnect()
    return messages
