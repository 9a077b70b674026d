"""`crewel subjects`, as it is typed."""

from __future__ import annotations

from tests.admin.desk import Receiver
from tests.cli.command import assert_refused
from tests.cli.operators import Post


def test_subjects_are_listed_and_shown(post: Post, joe: Receiver) -> None:
    assert joe.id
    post.receiver("joe/2", "/a/b")
    (found,) = post.lines("subjects", "list")
    assert (found["name"], found["sessions"]) == ("client/joe", ["client/joe/1", "client/joe/2"])
    assert post.lines("subjects", "show", "client/joe") == [found | {"may": "destroy"}]
    heading, row = post.run("subjects", "list", "--no-json").out.splitlines()
    assert heading.split() == ["subject", "sessions", "waiting", "blocked", "why"]
    assert row.split() == ["client/joe", "client/joe/1,", "client/joe/2", "0"]


def test_subject_is_blocked_and_unblocked(post: Post, joe: Receiver) -> None:
    assert joe.id
    assert post.run("subjects", "block", "joe", "--no-json").out == "client/joe: blocked, 1 sessions ended\n"
    assert [each["blocked"] for each in post.lines("subjects", "list")] == [True]
    assert post.run("subjects", "unblock", "joe", "--no-json").out == "client/joe: not blocked\n"
    assert post.lines("subjects", "list") == []


def test_subject_is_blocked_before_its_first_login(post: Post) -> None:
    assert post.run("subjects", "block", "ann", "--no-json").out == "client/ann: blocked, 0 sessions ended\n"
    assert [each["name"] for each in post.lines("subjects", "list")] == ["client/ann"]
    assert post.run("subjects", "unblock", "ann", "--no-json").out == "client/ann: not blocked\n"


def test_subject_is_killed_with_all_its_sessions(post: Post, joe: Receiver) -> None:
    assert joe.id
    assert post.lines("subjects", "kill", "joe") == [{"name": "client/joe", "killed": 1}]
    assert post.lines("sessions", "list") == []


def test_queue_of_a_subject_is_cleared(post: Post, joe: Receiver) -> None:
    assert joe.id
    assert post.run("subjects", "clear", "joe", "--no-json").out == "client/joe: 0 messages dropped\n"


def test_name_of_a_session_is_no_subject(post: Post) -> None:
    ended = post.run("subjects", "kill", "joe/1")
    assert (ended.status, ended.out) == (2, "")
    assert "joe/1 is not the name of a subject" in ended.err
    assert_refused(post.run("subjects", "show", "joe"), "there is no subject joe here")
