"""`crewel dead-letters`, as it is typed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.admin.desk import SETS, TOKEN, Desk, Receiver
from tests.cli.command import assert_refused, crewel
from tests.cli.operators import Post
from tests.conftest import StartServer
from tests.functional.wire import Connection, until


def test_list_prints_json_without_a_terminal(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 3)
    listed = post.lines("dead-letters", "list")
    assert listed == post.lines("dead-letters", "list", "--json")
    assert [list(letter) for letter in listed] == [
        ["id", "channel", "receiver", "errorCode", "reason", "attempts", "data"]
    ] * 3
    assert [letter["id"] for letter in listed] == ids
    assert listed[0] == {
        "id": ids[0], "channel": "/a/b", "receiver": "/node/heron/client/joe/1", "errorCode": "user.update.error",
        "reason": "no", "attempts": 1, "data": 0,
    }  # fmt: skip
    assert [letter["id"] for letter in post.lines("dead-letters", "list", "--newest", "--count", "2")] == ids[:0:-1]
    (shown,) = post.lines("dead-letters", "show", ids[1])
    assert shown == post.desk.get(f"/dead-letters/{ids[1]}")


def test_list_prints_a_table_for_people(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 2)
    ended = post.run("dead-letters", "list", "--no-json", "--count", "1")
    heading, row, more = ended.out.splitlines()
    assert heading.split() == ["id", "channel", "receiver", "code", "reason", "data"]
    assert row.split() == [ids[0], "/a/b", "joe/1", "user.update.error", "no", "0"]
    assert more.startswith("the first 1")
    assert ids[1] in post.run("dead-letters", "show", ids[1], "--no-json").out


def test_dead_letters_are_counted_in_all_and_by_receiver_and_code(post: Post, joe: Receiver) -> None:
    ann = post.receiver("ann/1", "/c")
    post.letters(joe, "/a/b", 2)
    post.letters(ann, "/c", 3, "user.clientCode")
    said = post.run("dead-letters", "count", "--no-json").out.splitlines()
    assert said[0] == "5 dead letters"
    assert [line.split() for line in said[1:]] == [
        ["by", "value", "dead", "letters"],
        ["receiver", "client/ann/1", "3"],
        ["receiver", "client/joe/1", "2"],
        ["code", "user.clientCode", "3"],
        ["code", "user.update.error", "2"],
    ]
    (told,) = post.lines("dead-letters", "count", "--receiver", "joe", "--by", "channel")
    assert (told["count"], told["partial"]) == (2, False)
    assert told["groups"]["channel"]["groups"] == [{"value": "/a/b", "count": 2}]
    assert_refused(post.run("dead-letters", "count", "--by", "colour"), "by: must be some of code, channel, receiver")
    asked = post.run("dead-letters", "redrive", "--all", "--dry-run", "--no-json").out
    assert asked == "5 dead letters of client/ann/1 (3) and client/joe/1 (2) would be redriven\n"


def test_a_code_that_was_converted_is_shown_as_it_was_given(post: Post, joe: Receiver) -> None:
    joe.publish("/a/b", 1, ext={"publish": {"persistent": True}})
    joe.reject(joe.take(), "resource.exhausted\x1b[2J", "")
    (letter,) = until(post.desk.letters)
    code = "user.update.internalError", "resource.exhausted\x1b[2J"
    assert (letter["errorCode"], letter["errorCodeGiven"]) == code
    (listed,) = post.lines("dead-letters", "list")
    assert (listed["errorCode"], listed["errorCodeGiven"]) == code
    assert post.lines("dead-letters", "show", letter["id"]) == [post.desk.get(f"/dead-letters/{letter['id']}")]
    assert post.desk.letters("contains=RESOURCE.ex") == [letter]
    status, said = post.on_terminal("dead-letters", "list")
    assert status == 0
    assert "user.update.internalError (given: resource.exhausted" in said
    assert "\x1b[2J" not in said


def test_a_reason_cannot_steer_the_terminal(post: Post, joe: Receiver) -> None:
    key = "key\x1b[2J"
    told = "\x1b[31mred\x1b]0;title\x07", {"deep": "\x9b2J\u202etxt\x7f"}
    for data in told:
        joe.publish("/a/b", data, ext={"publish": {"persistent": True, "key": f"{key}{len(data)}"}})
    joe.reject(joe.take(), text="\x1b[2Jgone\n\x9b2J\u202e")
    letter, *_ = until(lambda: them if len(them := post.desk.letters()) == 2 else None)
    failure = "__cmd:client/joe/1/?lastCallbackException"
    for command, word in (
        (("dead-letters", "list"), "[2Jgone"),
        (("message", letter["message"]), "idempotency key key"),
        (("cmd", failure), "[2Jgone"),
    ):
        status, said = post.on_terminal(*command)
        assert status == 0
        assert word in said
        for control in ("\x1b[2J", "\x1b]0;", "\x9b", "\u202e", "\x7f", "gone\r\n"):
            assert control not in said, (command, said)
    (line,) = post.run("cmd", failure).out.splitlines()
    assert line.endswith("\\x1b[2Jgone\\n\\x9b2J\\u202e")


def test_json_on_a_terminal_cannot_steer_it(post: Post, joe: Receiver) -> None:
    data = {"deep": "\x9b2J\u202etxt\x7f", "name": "Zoë"}
    joe.publish("/a/b", data, ext={"publish": {"persistent": True}})
    peek = "cmd", "__cmd:client/joe/1/?peekCallbackMessages=1"
    status, said = post.on_terminal(*peek)
    assert (status, json.loads(said)["data"]) == (0, data)
    assert said.isascii() is False
    for control in ("\x9b", "\u202e", "\x7f"):
        assert control not in said
    assert "\u202e" in post.run(*peek).out  # programs get each character as it is


def test_filters_choose_dead_letters(post: Post, joe: Receiver) -> None:
    ann = post.receiver("ann/1", "/c")
    post.letters(joe, "/a/b", 2)
    post.letters(ann, "/c", 3, "user.clientCode")

    def count(*filters: str) -> int:
        return len(post.lines("dead-letters", "list", *filters))

    assert count("--code", "user.update", "--receiver", "client/joe/1", "--channel", "/a/**", "--since", "1h") == 2
    assert count("--code", "user") == 5
    assert count("--receiver", "ann") == 3
    assert count("--since", "2999-01-01") == 0


def test_redrive_counts_with_dry_run_and_sends(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 5)
    assert post.lines("dead-letters", "redrive", "--all", "--dry-run") == [{"count": 5, "dryRun": True}]
    assert post.lines("dead-letters", "redrive", ids[4]) == [{"redriven": 1, "undone": []}]
    assert post.run("dead-letters", "redrive", "--all", "--no-json").out == "4 dead letters redriven\n"
    assert [message["data"] for message in joe.take_all()] == [4, 0, 1, 2, 3]
    assert post.lines("dead-letters", "list") == []


def test_a_redrive_by_ids_sends_the_oldest_first(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 4)
    assert post.lines("dead-letters", "redrive", *ids[::-1], "--rate", "3") == [{"redriven": 4, "undone": []}]
    assert [message["data"] for message in joe.take_all()] == [0, 1, 2, 3]


def test_redrive_to_the_channel_reaches_its_subscribers(post: Post, joe: Receiver) -> None:
    post.letters(joe, "/a/b", 2)
    other = post.receiver("ann/1", "/a/*")
    assert post.lines("dead-letters", "redrive", "--code", "user", "--to-channel")[0]["redriven"] == 2
    assert [message["data"] for message in until(other.take)] == [0, 1]


def test_redrive_ends_with_1_if_a_dead_letter_stays(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 2)
    post.desk.post("/sessions/joe/1/kill")
    ended = post.run("dead-letters", "redrive", "--all", "--no-json")
    assert (ended.status, ended.out) == (1, "0 dead letters redriven\n")
    assert ended.err.count("\n") == 1
    assert f"2 stayed (user.ptp.unknownDestinationSession); the first, {ids[0]}" in ended.err


def test_a_redrive_says_that_it_waits_for_room_and_what_stayed(post: Post) -> None:
    ann = post.receiver("ann/1", "/narrow", queue={"maxEntries": 2})
    post.letters(ann, "/narrow", 2)
    post.letters(ann, "/narrow", 2)
    ended = post.run("dead-letters", "redrive", "--all", "--wait-for-room-ms", "1000", "--no-json")
    assert (ended.status, ended.out) == (1, "2 dead letters redriven\n")
    waits, stayed = ended.err.splitlines()
    assert waits.startswith("waiting for room in the queue of client/ann/1; to end that: crewel jobs stop ")
    assert "2 stayed (resource.overflow.queue.entries)" in stayed


def test_redrive_works_on_more_than_one_request_takes(post: Post) -> None:
    # Settled by the batch: of so many open messages a killed session makes dead letters bit by bit, for the next test to meet.
    joe = post.receiver("joe/1", "/a/b", settle="batch", queue={"maxEntries": 2000}, burst={"maxEntries": 2000})
    ids = post.letters(joe, "/a/b", 700)
    assert len(post.lines("dead-letters", "list")) == 700
    assert post.lines("dead-letters", "redrive", *ids)[0]["redriven"] == 700
    assert [message["data"] for message in joe.take_all()] == list(range(700))


def test_an_interrupted_redrive_is_continued_by_the_server(post: Post, joe: Receiver) -> None:
    post.letters(joe, "/a/b", 60)
    process = post.start("dead-letters", "redrive", "--all", "--rate", "30")
    until(lambda: post.desk.get("/dead-letters/count")["count"] < 55)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    [job] = post.lines("jobs", "list", "--state", "running")
    assert f"crewel jobs follow {job['id']}" in said
    assert post.lines("jobs", "pause", job["id"], "--reason", "lunch")[0]["state"] == "paused"
    assert post.lines("jobs", "list", "--state", "paused")[0]["changedBy"] == "admin"
    sent = [message["data"] for message in joe.take_all()]
    assert 0 < len(sent) < 60
    assert post.lines("jobs", "resume", job["id"])[0]["state"] == "running"
    (followed,) = post.lines("jobs", "follow", job["id"])
    assert (followed["state"], followed["done"], followed["undone"]) == ("done", 60, 0)
    assert sent + [message["data"] for message in joe.take_all()] == list(range(60))
    assert_refused(post.run("jobs", "stop", job["id"]), "job: must be running or paused, but is done")
    assert_refused(post.run("jobs", "show", "1-1"), "there is no job 1-1")


def test_a_job_is_stopped_and_what_is_left_stays(post: Post, joe: Receiver) -> None:
    post.letters(joe, "/a/b", 30)
    # So slow that the job outlasts the commands that look at it and stop it, also where each takes seconds.
    (job,) = post.lines("dead-letters", "redrive", "--all", "--rate", "1", "--detach", "--reason", "a test")
    until(lambda: post.lines("jobs", "show", job["id"])[0]["done"] > 0)
    assert post.lines("jobs", "stop", job["id"])[0]["state"] == "stopped"
    assert post.run("jobs", "list", "--no-json").out.splitlines()[1].split()[:3] == [job["id"], "redrive", "stopped"]
    (shown,) = post.lines("jobs", "follow", job["id"])
    assert len(joe.take_all()) == shown["done"] < 30
    assert post.desk.get("/dead-letters/count")["count"] == 30 - shown["done"]
    assert (shown["who"], shown["reason"]) == ("admin", "a test")


def test_discard_asks_before_it_removes(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 4)
    assert post.lines("dead-letters", "discard", ids[0])[0]["discarded"] == 1
    refused = post.run("dead-letters", "discard", "--all")
    assert refused.status == 2
    assert "--yes" in refused.err
    status, said = post.on_terminal("dead-letters", "discard", "--all", typed="n\n")
    assert status == 1
    assert "Discard 3 dead letters of client/joe/1?" in said
    assert len(post.lines("dead-letters", "list")) == 3
    assert post.lines("dead-letters", "discard", "--all", "--dry-run") == [{"count": 3, "dryRun": True}]
    status, said = post.on_terminal("dead-letters", "discard", "--all", typed="y\n")
    assert status == 0
    assert "3 dead letters discarded" in said
    post.letters(joe, "/a/b", 2)
    assert post.lines("dead-letters", "discard", "--receiver", "joe", "--yes")[0]["discarded"] == 2
    assert post.lines("dead-letters", "list") == []


def test_export_prints_a_dead_letter_a_line(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 3)
    everything = post.lines("dead-letters", "export")
    assert everything == post.desk.letters()
    assert [letter["id"] for letter in post.lines("dead-letters", "export", "--all", "--receiver", "joe")] == ids
    assert [letter["id"] for letter in post.lines("dead-letters", "export", ids[2], ids[0])] == [ids[2], ids[0]]
    assert post.lines("dead-letters", "export", "--code", "communication") == []


def test_dump_writes_files_that_can_be_published(post: Post, joe: Receiver) -> None:
    ann = post.receiver("ann..x@y/7", "/c")
    ids = post.letters(joe, "/a/b", 2)
    post.letters(ann, "/c", 1)
    (told,) = post.lines("dead-letters", "dump", "--dir", "out/letters")
    assert told == {"written": 3, "there": 0}
    directory = post.directory / "out" / "letters"
    assert sorted(each.name for each in directory.iterdir()) == ["client_ann..x@y_7", "client_joe_1"]
    files = sorted((directory / "client_joe_1").iterdir())
    assert [file.name.partition("_")[2] for file in files] == [f"{dead_id}.json" for dead_id in ids]
    letter = json.loads(files[0].read_text())
    assert (letter["id"], letter["reason"]) == (ids[0], "no")
    with Connection(post.server) as connection:
        body = json.dumps(letter["publish"]).encode()
        connection.request("POST", "/api/publish", body, {"Authorization": f"Bearer {TOKEN}"})
        assert connection.response().messages[0]["successful"] is True
    assert [message["data"] for message in joe.take()] == [0]
    files[1].write_text("mine")
    files[0].unlink()
    assert post.lines("dead-letters", "dump", "--dir", "out/letters") == [{"written": 1, "there": 2}]
    assert files[1].read_text() == "mine"


def test_dump_to_an_impossible_directory_is_one_line(post: Post, joe: Receiver) -> None:
    post.letters(joe, "/a/b", 1)
    (post.directory / "file").write_text("")
    assert_refused(post.run("dead-letters", "dump", "--dir", "file"), "file", "Not a directory")


def test_progress_is_shown_on_a_terminal_only(post: Post, joe: Receiver) -> None:
    post.letters(joe, "/a/b", 3)
    status, said = post.on_terminal("dead-letters", "redrive", "--all")
    assert status == 0
    assert "redriving" in said
    assert "3 dead letters redriven" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("redrive",), "give ids, a filter (--code, --receiver, --channel, --since, --field, --with-reason), or"),
        (("discard",), "give ids, a filter ("),
        (("redrive", "7"), "7 is not the id of a dead letter"),
        (("redrive", "1-0", "--code", "user"), "ids or filters"),
        (("redrive", "--all", "--rate", "0"), "--rate"),
        (("redrive", "1-0", "--wait-for-room-ms", "5"), "--wait-for-room-ms is for filters"),
        (("redrive", "--all", "--since", "soon"), "--since takes a date"),
        (("list", "--receiver", "a/b/c"), "--receiver takes the name of a session or a subject"),
        (("list", "--channel", "chat"), "--channel takes a channel or a pattern"),
        (("list", "--code", "a b"), "--code takes an error code"),
        (("list", "--field", "order"), "--field takes a field of the data"),
        (("edit", "1-1", "--data", "{"), "--data takes JSON"),
        (("restore",), "give either ids, --job, or filters or --all"),
        (("restore", "--job", "1-1", "--all"), "give either ids, --job"),
        (("list", "--count", "0"), "--count"),
        (("show",), "ID"),
        (("show", "x"), "x is not the id"),
        (("dump",), "--dir"),
        (("dance",), "dance"),
        (("list", "--url", "localhost"), "--url takes an address"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = crewel("dead-letters", *arguments, directory=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err


def test_a_refusal_of_the_server_is_one_line(post: Post, tmp_path: Path) -> None:
    assert_refused(post.run("dead-letters", "show", "1-0"), "there is no dead letter 1-0")
    url = {"CREWEL_URL": post.server.url}
    assert_refused(crewel("dead-letters", "list", directory=tmp_path, environ=url | {"CREWEL_TOKEN": "x"}), "--token")
    assert_refused(
        crewel("dead-letters", "list", "--url", "http://127.0.0.1:9", directory=tmp_path),
        "http://127.0.0.1:9: connection refused: no server listens there; start it, or correct the address\n",
    )


@pytest.mark.parametrize("command", [("redrive",), ("redrive", "--dry-run"), ("discard", "--yes")])
def test_a_filter_that_matches_nothing_is_told(post: Post, command: tuple[str, ...]) -> None:
    """A mistyped receiver does no harm, but is not silent."""
    ended = post.run("dead-letters", *command, "--receiver", "absent/1")
    assert ended.status == 0
    assert next(iter(json.loads(ended.out).values())) == 0
    assert ended.err.startswith("crewel: no dead letter matches; ")
    assert ended.err.count("\n") == 1


def test_the_local_token_is_found(start_server: StartServer, tmp_path: Path) -> None:
    sets = [text for text in SETS if not text.startswith("admin.token=")]
    server = start_server(*sets)
    ended = crewel("dead-letters", "list", "--url", server.url, directory=tmp_path)
    assert (ended.status, ended.out, ended.err) == (0, "", "")
    token = (tmp_path / "data" / "admin.token").read_text().strip()
    assert Desk(server, token).letters() == []
    assert token not in server.stderr


def test_a_discard_is_undone(post: Post, joe: Receiver) -> None:
    ids = post.letters(joe, "/a/b", 3)
    post.lines("dead-letters", "discard", *ids[:2], "--reason", "oops")
    binned = post.lines("dead-letters", "bin")[:2]
    assert [(each["id"], each["discarded"]["who"]) for each in binned] == [(ids[1], "admin"), (ids[0], "admin")]
    assert ids[0] in post.run("dead-letters", "bin", "--no-json", "--receiver", "joe").out
    (told,) = post.lines("dead-letters", "restore", ids[0], "--reason", "still needed")
    assert (told["restored"], list(told["ids"])) == (1, [ids[0]])
    (told,) = post.lines("dead-letters", "restore", "--receiver", "joe", "--since", "1h")
    assert ids[1] in told["ids"]
    assert len(post.desk.letters(f"since={ids[2].partition('-')[0]}")) >= 3
    (told,) = post.lines("dead-letters", "discard", ids[2], "--for-good")
    assert told["discarded"] == 1
    assert ids[2] not in [each["id"] for each in post.lines("dead-letters", "bin")]


def test_a_message_is_edited_and_found_by_a_field(post: Post, joe: Receiver) -> None:
    joe.publish("/a/b", {"order": 100}, ext={"publish": {"persistent": True}})
    joe.publish("/a/b", {"order": 1000}, ext={"publish": {"persistent": True}})
    joe.reject(until(lambda: found if len(found := joe.take()) == 2 else None), text="order 7 is cold")
    until(lambda: len(post.desk.letters()) == 2)
    (found,) = post.lines("dead-letters", "list", "--field", "order=100", "--with-reason", "order 8 is cold")
    (told,) = post.lines("dead-letters", "edit", found["id"], "--data", '{"order": 101}', "--reason", "wrong")
    assert told["original"] == found["id"]
    assert [each["data"] for each in until(joe.take)] == [{"order": 101}]
