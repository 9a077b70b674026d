"""Dead letters that a condition in SQL chooses, and that a server sends again: each once, whatever happens between."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from crewel.errors import CrewelError, SettingsError
from crewel.pipeline.admin_client import AdminClient, origin
from crewel.pipeline.connection import Address
from crewel.pipeline.jobs.redrive import BadCondition, Options, chosen, run, searchable
from crewel.pipeline.source import register
from tests.admin.desk import SETS, TOKEN, Receiver, publish
from tests.admin.desk import Desk as Operator
from tests.conftest import StartServer
from tests.functional.wire import until
from tests.pipeline.conftest import Streams
from tests.pipeline.frames import frame, time
from tests.ports import free_port

PATIENCE_S = 5.0


# Choosing


@pytest.fixture(scope="module")
def few(spark: SparkSession) -> DataFrame:
    """Three letters."""
    rows = [
        {"ms": 1000, "died": time(1000), "code": "user.update.error", "channel": "/orders/new", "attempts": 1},
        {"ms": 2000, "died": time(2000), "code": "user.update.error", "channel": "/bills", "attempts": 5},
        {
            "ms": 3000,
            "died": time(3000),
            "code": "communication.responseTimeout",
            "channel": "/orders/old",
            "attempts": 2,
        },
    ]
    return searchable(frame(spark, "letters", rows)).cache()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("error_code = 'user.update.error' and channel like '/orders/%'", ["1000-0"]),
        ("first_seen > '1970-01-01T00:00:01.5Z'", ["2000-0", "3000-0"]),
        ("attempts between 2 and 5 and not channel rlike 'old$'", ["2000-0"]),
        ("letter = '3000-0' or place = '1000-0'", ["1000-0", "3000-0"]),
        ("true", ["1000-0", "2000-0", "3000-0"]),
        ("redrive_of is null", []),
    ],
)
def test_a_condition_chooses_by_columns_and_by_their_further_names(
    few: DataFrame, where: str, found: list[str]
) -> None:
    assert sorted(row.place for row in chosen(few, where).collect()) == found


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("error_cod = 'x'", "there is no column error_cod; there are at, attempts, body, channel, code"),
        ("nothing_of(channel)", "nothing_of"),
        ("channel = ", "no condition in SQL"),
        ("code = 'a' order by code", "no condition in SQL"),
        ("", "no condition in SQL"),
        ("channel", "true or false"),
        ("attempts", "true or false"),
        ("count(*) > 1", "invalid expressions"),
    ],
)
def test_a_condition_that_is_none_is_refused_with_what_is_wrong(few: DataFrame, where: str, words: str) -> None:
    with pytest.raises(BadCondition, match="--where") as raised:
        chosen(few, where)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


# Sending, with a server that fails


class Office(BaseHTTPRequestHandler):
    """A server's administration: it has letters, and sometimes breaks off after it has done what it was asked."""

    letters: ClassVar[set[str]]
    sent: ClassVar[list[str]]
    breaks: ClassVar[list[int | str]]
    """What happens to the next requests: a status, or `lost` for an answer that is."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        trouble = self.breaks.pop(0) if self.breaks else 200
        if isinstance(trouble, int) and trouble != 200:
            self._say(trouble, {"message": "not now"})
            return
        ids = body["ids"][: body["count"]]
        there = [each for each in ids if each in self.letters]
        self.letters.difference_update(there)
        self.sent.extend(there)
        undone = [
            {"id": each, "errorCode": "user.illegalArgument", "message": "gone"} for each in ids if each not in there
        ]
        if trouble == "lost":
            self.close_connection = True
            return
        left = ids[-1] if len(ids) < len(body["ids"]) else ""
        self._say(200, {"redriven": len(there), "undone": undone, "next": left, "waitMs": 0})

    def _say(self, status: int, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Place:
    """Letters in a store, the server that has them, and where the tables are."""

    def __init__(self, spark: SparkSession, streams: Streams, directory: Path, url: str) -> None:
        self.spark, self.streams, self.directory, self.url = spark, streams, directory, url
        register(spark, streams.address)

    def letter(self, ms: int, code: str = "user.update.error") -> str:
        fields = {
            "id": str(ms),
            "receiver": "client/joe/1",
            "code": code,
            "channel": "/a",
            "attempts": "1",
            "body": "{}",
        }
        place = self.streams.add("dead", fields, f"{ms}-0")
        Office.letters.add(place)
        return place

    def options(self, **more: Any) -> Options:
        usual = {"where": "code = 'user.update.error'", "job": "j", "url": self.url}
        return Options(self.streams.address, self.directory, **(usual | more))

    def run(self, **more: Any) -> Any:
        return run(self.spark, self.options(**more))


@pytest.fixture
def place(spark: SparkSession, streams: Streams, tmp_path: Path) -> Iterator[Place]:
    Office.letters, Office.sent, Office.breaks = set(), [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Office) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Place(spark, streams, tmp_path, f"http://127.0.0.1:{server.server_port}/cometd")
        server.shutdown()
        thread.join()


def test_a_dry_run_counts_and_sends_nothing(place: Place) -> None:
    for ms in (1, 2, 3):
        place.letter(ms)
    place.letter(4, "other.code")
    result = place.run(where="true", dry_run=True)
    assert (result.chosen, result.redriven) == (4, 0)
    assert result.by_code == (("user.update.error", 3), ("other.code", 1))
    assert Office.sent == []
    assert not (place.directory / "redrives").exists()


def test_the_same_job_again_adds_none(place: Place) -> None:
    first = [place.letter(ms) for ms in range(1, 8)]
    result = place.run()
    assert (result.chosen, result.redriven, result.gone) == (7, 7, 0)
    place.letter(100)  # which died anew
    again = place.run()
    assert (again.chosen, again.redriven, again.gone) == (7, 0, 7)
    assert Office.sent == first
    assert place.run(job="another").redriven == 1


def test_a_job_without_letters_stays_one_without_and_another_condition_is_refused(place: Place) -> None:
    assert place.run().chosen == 0
    place.letter(1)
    assert place.run().chosen == 0
    with pytest.raises(SettingsError, match="was about another condition"):
        place.run(where="true")


def test_a_job_that_broke_off_goes_on_and_sends_each_letter_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crewel.pipeline.jobs.redrive._PORTION", 3)
    letters = [place.letter(ms) for ms in range(1, 11)]
    Office.breaks = [200, "lost", 200, 403]
    with pytest.raises(CrewelError, match="not now; 3 are redriven, 3 were gone; --job j continues") as raised:
        place.run()
    assert "\n" not in str(raised.value)
    result = place.run()
    assert (result.chosen, result.redriven, result.gone) == (10, 4, 6)
    assert Office.sent == letters


def test_a_job_of_an_earlier_version_continues(place: Place) -> None:
    letters = [place.letter(ms) for ms in (9, 10)]
    kept = place.directory / "redrives" / "j"
    kept.mkdir(parents=True)
    columns = {"number": [0, 1], "letter": letters, "condition": ["code = 'user.update.error'"] * 2}
    parquet.write_table(pa.table(columns), kept / "part-0.parquet")
    (kept / "_SUCCESS").touch()
    assert place.run().redriven == 2
    assert Office.sent == letters
    with pytest.raises(SettingsError, match="was about another condition"):
        place.run(where="true")


@pytest.mark.parametrize("job", ["", "../x", "a b", "x" * 200])
def test_a_name_that_is_none_is_refused(place: Place, job: str) -> None:
    with pytest.raises(SettingsError, match="not a job name"):
        place.run(job=job)


def test_a_value_that_does_not_fit_is_told_as_the_fault_of_the_condition(place: Place) -> None:
    place.letter(1)
    with pytest.raises(BadCondition, match="--where"):
        place.run(where="cast(receiver as int) = 1")


def test_a_server_that_is_away_is_waited_for_but_not_for_ever(place: Place) -> None:
    waited: list[float] = []
    told: list[str] = []
    Office.breaks = [503, 502, "lost", 200]
    desk = AdminClient(place.url, "token", PATIENCE_S, waited.append, told.append)
    assert desk.redrive({"ids": [], "count": 1})["redriven"] == 0
    assert len(waited) == 3
    assert told == [f"{place.url} does not answer; waiting for it"]
    Office.breaks = [503] * 100
    with pytest.raises(CrewelError, match="has not answered for 0 s: not now"):
        AdminClient(place.url, "token", 0.0).redrive({"ids": []})
    with pytest.raises(SettingsError, match="--url takes an address"):
        AdminClient("file:///etc/passwd").redrive({})
    assert "secret" not in repr(AdminClient("http://x", "secret"))
    assert "secret" not in repr(place.options(token="secret"))


@pytest.mark.parametrize(("host", "uses_proxy"), [("127.0.0.1", False), ("localhost", False), ("crewel.invalid", True)])
def test_the_token_for_a_server_on_loopback_goes_through_no_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str, uses_proxy: bool
) -> None:
    paths: list[str] = []

    class Proxy(Office):
        def do_POST(self) -> None:
            paths.append(self.path)
            self._say(403, {"message": "from the proxy"})

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        serving = threading.Thread(target=proxy.serve_forever)
        serving.start()
        try:
            for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
            address = f"http://{host}:{free_port()}"
            with pytest.raises(CrewelError, match="from the proxy" if uses_proxy else "has not answered"):
                AdminClient(address, "secret", 0.0).check()
        finally:
            proxy.shutdown()
            serving.join()
    assert paths == ([f"{address}/admin/api/dead-letters/redrive"] if uses_proxy else [])


def test_a_proxy_on_the_way_is_named_without_its_password() -> None:
    class Proxy(Office):
        def do_CONNECT(self) -> None:
            self._say(407, {})

        do_POST = do_CONNECT  # noqa: N815 - as its base class has it

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        serving = threading.Thread(target=proxy.serve_forever)
        serving.start()
        try:
            named = f"http://joe:s%3Acret@127.0.0.1:{proxy.server_port}"
            with pytest.raises(CrewelError, match=r"answered 407 .*http://NAME:PASSWORD@HOST:PORT") as plain:
                AdminClient("http://crewel.invalid", "secret", 0.0, proxy=named).check()
            with pytest.raises(CrewelError, match=r"\(through the proxy http://127\.0\.0\.1:\d+\) .* 407") as secure:
                AdminClient("https://crewel.invalid", "secret", 0.0, proxy=named).check()
        finally:
            proxy.shutdown()
            serving.join()
    assert "cret" not in f"{plain.value}{secure.value}{AdminClient('http://x', proxy=named)}"
    with pytest.raises(SettingsError, match="the address of an HTTP proxy"):
        AdminClient("http://crewel.invalid", proxy="socks5://x").check()


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("ws://localhost:8080/cometd", "http://localhost:8080"),
        ("https://joe:secret@crewel.example/x", "https://crewel.example"),
        ("http://joe@[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_the_origin_of_an_address_has_no_name_and_no_password(url: str, found: str) -> None:
    assert origin(url) == found


# Sending, with a real server


def test_letters_go_to_their_receivers_again_each_once(
    spark: SparkSession, address: Address, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(*SETS, f"storage.url={address.url}", f"storage.prefix={address.prefix}")
    register(spark, address)
    joe = Receiver(server).be("joe/1")
    for channel in ("/orders/new", "/bills"):
        joe.subscribe(channel)
        publish(server, channel, 5)
        joe.reject(joe.take())
    until(lambda: len(Operator(server).letters()) == 10)
    where = "error_code = 'user.update.error' and channel like '/orders/%' and first_seen > '2020-01-01'"
    options = Options(address, tmp_path, where, "again", url=server.url, token=TOKEN)
    AdminClient(server.url, TOKEN).check()
    with pytest.raises(CrewelError, match="it knows its admin token only; --token"):
        AdminClient(server.url, "wrong").check()
    result = run(spark, options)
    assert (result.chosen, result.redriven, result.stayed) == (5, 5, ())
    taken = joe.take()
    assert [(message["channel"], message["data"]) for message in taken] == [("/orders/new", n) for n in range(5)]
    joe.reject(taken)
    until(lambda: len(Operator(server).letters()) == 10)
    assert run(spark, options).redriven == 0, "the same name again adds none, though they have died anew"
    assert joe.take() == []
    slow = run(spark, Options(address, tmp_path, where, "slow", rate=20.0, url=server.url, token=TOKEN))
    assert slow.redriven == 5
    with pytest.raises(CrewelError, match="token"):
        run(spark, Options(address, tmp_path, "true", "nobody", url=server.url, token="wrong"))
