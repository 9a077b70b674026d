"""What `crewel pub` and `crewel sub` ask for, as it is typed, done by a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Ended, Running, assert_refused
from tests.cli.operators import LIMIT_S, Post
from tests.functional.wire import until

Sub = Callable[..., Running]


@pytest.fixture
def sub(post: Post, tmp_path: Path) -> Iterator[Sub]:
    """Start `crewel sub` and wait until it is subscribed."""
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        url = [f"--url={post.server.url}", f"--token={post.environ['CREWEL_TOKEN']}"]
        running = Running("sub", *url, *arguments, directory=tmp_path)
        started.append(running)
        assert (line := running.told()).startswith("crewel: subscribed to "), line
        return running

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


@pytest.fixture(autouse=True)
def _erased(post: Post) -> Iterator[None]:
    yield
    for topic in post.desk.get("/topics?pattern=/typed/**")["topics"]:
        post.desk.ask("DELETE", f"/topics{topic['channel']}?force=true")


def pub(post: Post, *arguments: str) -> None:
    assert post.run("pub", *arguments) == (0, "", "")


def data(running: Running, count: int) -> list[Any]:
    return [running.said()["data"] for _ in range(count)]


@pytest.mark.parametrize("transport", ["websocket", "long-polling"])
def test_a_line_that_the_server_never_takes_is_named_at_once(post: Post, transport: str) -> None:
    """With --persistent it would else be tried again for half a minute."""
    deep = "[" * 70 + "]" * 70
    ended = post.run("pub", "/typed/a", "-", "--persistent", f"--transport={transport}", given=f"1\n2\n{deep}\n4\n")
    assert_refused(ended, "message 3, after 2 that were published: ", "deeper than bayeux.max_depth, which is 64")


def test_what_is_addressed_to_a_name_is_printed(post: Post, sub: Sub) -> None:
    named = sub("--name=joe/1", "--count=3")
    both = sub("/typed/a", "--name=ann/1", "--count=3")
    pub(post, "/typed/a", "1", "--to=client/joe", "--to=client/ann/1")
    pub(post, "/typed/b", "2", "--to=joe/1", "--to=ann", "--not-subscribable")
    pub(post, "/service/mail", "3", "--to=joe")
    first = named.said()
    assert (first["channel"], first["data"], first["ext"]["update"]["subscription"]) == ("/typed/a", 1, "__subId:PtP")
    assert data(named, 2) == [2, 3]
    assert named.end() == (0, "")
    # ann is subscribed to the first one's channel, and hears it a second time.
    assert sorted(data(both, 3)) == [1, 1, 2]
    assert both.end() == (0, "")


def test_a_named_sender_is_shown_and_takes_nothing_that_waits(post: Post, sub: Sub) -> None:
    pub(post, "/typed/a", "for joe", "--to=client/joe", "--force-queuing")
    heard = sub("/typed/b", "--count=2")
    pub(post, "/typed/b", "1", "--name=joe", "--count=2", "--persistent")
    for _ in range(2):
        assert heard.said()["ext"]["update"]["sender"].startswith("client/joe/-")
    assert heard.end() == (0, "")
    assert data(sub("--name=joe", "--count=1"), 1) == ["for joe"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("joe/1", "joe/1 is a session"), ("a b", "not a subject: a b"), ("anonymous", "not a subject: anonymous")],
)
def test_what_is_no_subject_sends_nothing(post: Post, name: str, problem: str) -> None:
    ended = post.run("pub", "/typed/a", "1", f"--name={name}")
    assert ended.status == 2
    assert problem in " ".join(ended.err.split())


def test_a_message_waits_for_its_subject(post: Post, sub: Sub) -> None:
    pub(post, "/typed/a", "low", "--to=client/joe", "--force-queuing", "--priority=low")
    pub(post, "/typed/a", "high", "--to=client/joe", "--force-queuing", "--priority=8", "--key=once")
    pub(post, "/typed/a", "high", "--to=client/joe", "--force-queuing", "--priority=8", "--key=once")
    assert post.desk.cmd("__cmd:client/joe/?subjectQueueNumMsgs") == 2
    joe = sub("--name=joe", "--count=2")
    assert data(joe, 2) == ["high", "low"]
    assert joe.end() == (0, "")


def test_what_does_not_arrive_is_one_line_that_tells_of_each(post: Post) -> None:
    ended = post.run("pub", "/typed/a", "1", "--to=client/nobody")
    assert_refused(ended, "404:client/nobody:user.ptp.unknownDestination")
    ended = post.run("pub", "/typed/a", "1", "--to=joe", "--force-queuing", "--to=ann/7")
    assert_refused(
        ended,
        "user.ptp.unknownDestinationSession",
        "of all destinations: client/joe OK, client/ann/7 user.ptp.unknownDestinationSession",
    )
    ended = post.run("pub", "/typed/a", "1", "--to=client/nobody", "--json")
    assert ended.status == 1
    (state,) = json.loads(ended.out)["ext"]["publish"]["destinations"]
    assert state["errorCode"] == "user.ptp.unknownDestination"
    post.desk.cmd("__cmd:client/joe/?clearSubjectQueue")


def test_a_topic_is_configured_and_read(post: Post, sub: Sub) -> None:
    pub(post, "/typed/a", "--administrative", "--history=2", "--destroy-delay=1h")
    for number in range(3):
        pub(post, "/typed/a", str(number), "--life-time=10m", '--property=kind="pizza"')
    (shown,) = post.lines("topics", "show", "/typed/a")
    assert (shown["history"]["entries"], shown["destroyDelay"]) == (2, 3_600_000)
    assert data(sub("/typed/a", "--history=5"), 2) == [1, 2]
    assert data(sub("/typed/a", "--history=5", "--newest-first"), 2) == [2, 1]
    message = sub("/typed/a", "--history=1").said()
    assert message["ext"]["update"]["initial"] is True
    assert message["ext"]["update"]["clientProperties"] == {"kind": "pizza"}
    assert 0 < message["ext"]["update"]["remainingLife"] <= 600_000


def test_a_readonly_topic_and_a_message_that_changes_nothing(post: Post, sub: Sub) -> None:
    pub(post, "/typed/a", "1", "--readonly")
    assert_refused(post.run("pub", "/typed/a", "2"), "409:/typed/a:user.publish.readonly")
    heard = sub("/typed/b", "--count=2")
    for text in ("same", "same", "other"):
        pub(post, "/typed/b", text, "--history=1", "--no-force-update")
    assert data(heard, 2) == ["same", "other"]


def test_only_what_fits_is_printed(post: Post, sub: Sub) -> None:
    large = sub("/typed/a", "--filter=data.n > `2`", "--count=2")
    for number in range(5):
        pub(post, "/typed/a", json.dumps({"n": number}))
    assert data(large, 2) == [{"n": 3}, {"n": 4}]
    ended = post.run("sub", "/typed/a", "--filter=data.[")
    assert_refused(ended, "/typed/a was refused: 400:", "filter")


def test_members_of_a_group_share(post: Post, sub: Sub) -> None:
    cooks = [sub("/typed/a", "--group=cooks", f"--name=cook/{number}", "--count=2") for number in (1, 2)]
    pub(post, "/typed/a", "pizza", "--count=4")
    assert [data(cook, 2) for cook in cooks] == [["pizza"] * 2] * 2
    assert [cook.end() for cook in cooks] == [(0, "")] * 2


def test_reading_goes_on_where_it_ended(post: Post, sub: Sub) -> None:
    pub(post, "/typed/a", "--administrative", "--history=10")
    first = sub("/typed/a", "--since=now", "--count=2")
    assert first.told() == "crewel: /typed/a: recovered\n"
    for number in range(2):
        pub(post, "/typed/a", str(number))
    assert data(first, 2) == [0, 1]
    status, err = first.end()
    place = err.removeprefix("crewel: continue with --since ").strip()
    assert (status, place.count(":")) == (0, 1), err
    for number in range(2, 5):
        pub(post, "/typed/a", str(number))
    again = sub("/typed/a", f"--since={place}", "--count=3")
    assert again.told() == "crewel: /typed/a: recovered\n"
    assert data(again, 3) == [2, 3, 4]
    post.lines("topics", "clear", "/typed/a")
    late = sub("/typed/a", f"--since={place}")
    assert late.told() == "crewel: /typed/a: not recovered\n"
    status, err = late.end(signal.SIGINT)
    assert status == 0
    assert "continue with --since" in err


def test_the_end_of_a_topic_is_printed_and_the_next_one_heard(post: Post, sub: Sub) -> None:
    heard = sub("/typed/a", "--count=3")
    pub(post, "/typed/a", "old")
    assert heard.said()["data"] == "old"
    post.lines("topics", "erase", "/typed/a", "--force", "--yes")
    notice = heard.said()
    assert (notice["data"], notice["ext"]["update"]["state"]) == (None, "ERASED")
    assert heard.told() == "crewel: /typed/a was erased, subscribing again\n"
    until(lambda: post.desk.ask("GET", "/topics/typed/a").status == 200)
    pub(post, "/typed/a", "new")
    assert heard.said()["data"] == "new"
    assert heard.end() == (0, "")


def test_a_client_need_not_hear_itself(post: Post, sub: Sub) -> None:
    heard = sub("/typed/a", "--no-local", "--count=1")
    pub(post, "/typed/a", "1")
    assert data(heard, 1) == [1]


def test_one_at_a_time_all_are_printed_in_their_order(post: Post, sub: Sub) -> None:
    one = sub("/typed/a", "--max-open=1", "--count=3")
    pub(post, "/typed/a", "1", "--persistent", "--count=3")
    assert data(one, 3) == [1, 1, 1]
    assert one.end() == (0, "")


def test_a_limit_of_open_messages_needs_acknowledgements(post: Post) -> None:
    ended = post.run("sub", "/typed/a", "--max-open=1", "--no-ack")
    assert (ended.status, ended.out) == (2, "")
    assert "--max-open needs --ack" in ended.err


def typed(post: Post, given: Path, *arguments: str, **more: str) -> Ended:
    """The end of a command, in an interpreter of its own, that reads this file."""
    descriptor = os.open(given, os.O_RDONLY)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "crewel", *arguments],
            stdin=descriptor,
            capture_output=True,
            cwd=post.directory,
            env=os.environ | post.environ | more,
            timeout=LIMIT_S,
        )
    finally:
        os.close(descriptor)
    return Ended(ended.returncode, ended.stdout.decode("latin-1"), ended.stderr.decode())


@pytest.mark.parametrize(
    ("given", "published", "problem"),
    [
        ("\N{BYTE ORDER MARK}1\r\n2\r3\n".encode(), [1, 2, 3], ""),
        (b"1\ncaf\xe9\n", [1], "standard input is not UTF-8: byte 0xe9 at offset 5, in line 2;"),
        ("caf\xe9\n".encode("utf-16"), [], "not UTF-8 but UTF-16: byte 0xff at offset 0;"),
        ("caf\xe9\n".encode("utf-16-be"), [], "not UTF-8 but UTF-16: byte 0x00 at offset 0;"),
    ],
)
def test_lines_are_published_as_utf_8_or_refused_by_their_place(
    post: Post, sub: Sub, given: bytes, published: list[int], problem: str
) -> None:
    heard = sub("/typed/a")
    (file := post.directory / "lines").write_bytes(given)
    ended = typed(post, file, "pub", "/typed/a")
    assert (ended.status, ended.out) == (1 if problem else 0, "")
    assert problem in ended.err
    pub(post, "/typed/a", "last")
    assert data(heard, len(published) + 1) == [*published, "last"]


@pytest.mark.parametrize("option", ["--json", "--no-json"])
def test_an_output_that_is_not_utf_8_is_escaped(post: Post, option: str) -> None:
    pub(post, "/typed/a", "--administrative", "--history=1")
    pub(post, "/typed/a", "caf\xe9 \N{SLICE OF PIZZA}")
    ended = typed(
        post, Path(os.devnull), "sub", "/typed/a", "--history=1", "--count=1", option, PYTHONIOENCODING="latin-1"
    )
    assert (ended.status, "Traceback" in ended.err) == (0, False)
    assert "caf\xe9 \\ud83c\\udf55" in ended.out


def test_what_no_one_has_read_from_a_pipe_stays_with_the_server(post: Post, sub: Sub) -> None:
    first = sub("/typed/a", "--name=joe/1", "--leave")
    for number in range(5):
        pub(post, "/typed/a", str(number), "--persistent")
    assert data(first, 2) == [0, 1]
    assert first.process.stdout is not None
    first.process.stdout.close()
    assert first.end() == (0, "")  # though no other message comes
    assert data(sub("/typed/a", "--name=joe/1", "--count=3"), 3) == [2, 3, 4]


def test_a_message_that_could_not_be_printed_is_neither_acknowledged_nor_rejected(
    post: Post, sub: Sub, tmp_path: Path
) -> None:
    url = [f"--url={post.server.url}", f"--token={post.environ['CREWEL_TOKEN']}"]
    with Path("/dev/full").open("wb") as full:
        wanted = ["/typed/a", "--name=joe/1", "--leave"]
        failing = Running("sub", *url, *wanted, directory=tmp_path, stdout=full.fileno())
        assert failing.told().startswith("crewel: subscribed to ")
        pub(post, "/typed/a", "1", "--persistent")
        status, err = failing.end()
    assert (status, "Traceback" in err) == (1, False)
    assert data(sub("/typed/a", "--name=joe/1", "--count=1"), 1) == [1]


def test_a_session_that_is_not_left_ends_with_the_reader_of_its_output(post: Post, sub: Sub) -> None:
    running = sub("/typed/a", "--name=joe/1")
    assert running.process.stdout is not None
    running.process.stdout.close()
    assert running.end() == (0, "")
    assert post.lines("sessions", "list") == []


def test_a_reader_that_ends_within_a_message_ends_the_session_too(post: Post, sub: Sub) -> None:
    running = sub("/typed/a", "--name=joe/1", "--no-json")
    pub(post, "/typed/a", f"[{'1,' * 30_000}1]")  # printed, it is more than a pipe holds
    assert running.process.stdout is not None
    assert running.process.stdout.read(1) == "/"
    running.process.stdout.close()
    assert running.end() == (0, "")
    assert post.lines("sessions", "list") == []


def test_a_list_that_no_one_reads_ends_without_an_error(post: Post, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    url = [f"--url={post.server.url}", f"--token={post.environ['CREWEL_TOKEN']}"]
    running = Running("sessions", "list", "--no-json", *url, directory=tmp_path, stdout=writing)
    os.close(writing)
    assert running.end() == (0, "")


def test_replies_that_no_one_reads_stop_a_publish_with_an_error(post: Post) -> None:
    process = post.start("pub", "/typed/a", "1", "--count=100000", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["successful"]
    process.stdout.close()
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert err.startswith("crewel: standard output is closed: stopped after ")


@pytest.mark.parametrize(("option", "separator"), [("--json", ","), ("--no-json", ", ")])
def test_numbers_are_published_and_printed_as_they_are_typed(post: Post, sub: Sub, option: str, separator: str) -> None:
    numbers = ["18446744073709551616", "12345678901234567.89", "0.10000000000000001", "1e-400"]
    running = sub("/typed/a", option)
    pub(post, "/typed/a", f"[{','.join(numbers)}]")
    assert running.process.stdout is not None
    assert f"[{separator.join(numbers)}]" in running.process.stdout.readline()
