"""Names of sessions: what is one, and the form under which a session is kept."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.qos.names import (
    MAX_NUMBER,
    Name,
    as_file_name,
    group_called,
    group_of,
    is_name_for_login,
    is_subject,
    parse_name,
    queue_of,
    shown_name,
)
from tests.texts import texts

subjects = texts(string.ascii_letters + string.digits + "._@+|:=-", min_size=1, max_size=255)
numbers = st.integers(-MAX_NUMBER, MAX_NUMBER)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("joe", Name("joe")),
        ("client/joe", Name("joe")),
        ("joe/2", Name("joe", 2)),
        ("client/joe/2", Name("joe", 2)),
        ("client/joe/session/2", Name("joe", 2)),
        ("client/joe/-3", Name("joe", -3)),
        ("client/joe/0", Name("joe")),
        ("client/joe/-0", Name("joe")),
        ("client/joe/007", Name("joe", 7)),
        ("/node/heron/client/joe", Name("joe", 0, "heron")),
        ("/node/heron/client/joe/2", Name("joe", 2, "heron")),
        ("/node//client/joe/2", Name("joe", 2)),
        ("client", Name("client")),
        ("client/1", Name("1")),
        ("client/client/1", Name("client", 1)),
        ("joe.doe@example.org", Name("joe.doe@example.org")),
        ("-", Name("-")),
        ("x" * 255, Name("x" * 255)),
        ("auth0|5f7c8ec7c33c6c004bbafe82/1", Name("auth0|5f7c8ec7c33c6c004bbafe82", 1)),
        ("_x-9Qm_b3/1", Name("_x-9Qm_b3", 1)),
        ("joe+crewel@example.org", Name("joe+crewel@example.org")),
        ("f:0ac4:joe", Name("f:0ac4:joe")),
        ("samlp|acme|aGk=", Name("samlp|acme|aGk=")),
        ("__admins", Name("__admins")),
        ("../1", Name("..", 1)),
        (f"joe/{MAX_NUMBER}", Name("joe", MAX_NUMBER)),
    ],
)
def test_these_are_names(text: str, name: Name) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "/joe",
        "/client/joe",
        "client/",
        "client//1",
        "client/joe/",
        "client/joe/one",
        "client/joe/1/",
        "client/joe/1/2",
        "client/joe/+1",
        "client/joe/1.0",
        "client/joe/--1",
        f"client/joe/{MAX_NUMBER + 1}",
        f"client/joe/-{MAX_NUMBER + 1}",
        "client/joe/99999999999999999999",
        "client/joe/\u0661",
        "node/heron/client/joe",
        "/node/heron/joe",
        "/node/he ron/client/joe",
        "x" * 256,
        "jo e",
        "jo%65",
        "jo?e",
        "__admin",
        "__admin/1",
        "client/__0123456789abcdef0123456789abcdef/1",
        "j\u00f6e",
        "joe\n",
        "client/joe/1\n",
        "../joe",
        "*",
        "client/*/1",
    ],
)
def test_these_are_none(text: str) -> None:
    assert parse_name(text) is None


@pytest.mark.parametrize(
    ("text", "can_log_in"),
    [
        ("joe", True),
        ("joe/1", True),
        ("client/joe/-1", True),
        ("joe/0", False),
        (f"joe/{MAX_NUMBER + 1}", False),
        ("j\u00f6e", False),
    ],
)
def test_a_client_logs_in_as_a_subject_or_as_a_session_with_a_number(text: str, can_log_in: bool) -> None:
    assert is_name_for_login(text) is can_log_in


@pytest.mark.parametrize(
    ("name", "relative", "absolute"),
    [
        (Name("joe"), "client/joe", "/node/heron/client/joe"),
        (Name("joe", 1), "client/joe/1", "/node/heron/client/joe/1"),
        (Name("joe", -7, "elsewhere"), "client/joe/-7", "/node/heron/client/joe/-7"),
    ],
)
def test_a_name_has_one_form_without_and_one_with_the_node(name: Name, relative: str, absolute: str) -> None:
    assert name.relative == relative
    assert name.absolute("heron") == absolute


@pytest.mark.parametrize(
    ("number", "is_chosen", "is_numbered"), [(1, True, False), (0, False, False), (-1, False, True)]
)
def test_the_sign_of_the_number_tells_who_chose_it(number: int, is_chosen: bool, is_numbered: bool) -> None:
    name = Name("joe", number)
    assert (name.is_chosen, name.is_numbered) == (is_chosen, is_numbered)


@given(subjects, numbers)
def test_each_form_of_a_name_is_read_as_that_name(subject: str, number: int) -> None:
    name = Name(subject, number)
    assert parse_name(name.relative) == name
    assert parse_name(name.absolute("heron")) == Name(subject, number, "heron")


@given(texts(max_size=80))
def test_any_text_is_a_name_or_is_not(text: str) -> None:
    name = parse_name(text)
    assert name is None or parse_name(name.relative) == Name(name.subject, name.number)
    assert name is None or is_subject(name.subject) is not name.has_dot_segment


@pytest.mark.parametrize(
    ("text", "name"),
    [("joe", "joe"), ("a/../b|c_d@e", "a%2F..%2Fb%7Cc_d@e"), ("x" * 200, "x" * 200)],
)
def test_a_text_has_one_name_as_a_file(text: str, name: str) -> None:
    assert as_file_name(text) == name


def test_a_long_text_has_a_name_of_its_own_that_every_file_system_takes() -> None:
    names = {as_file_name("|" * 300 + end) for end in ("a", "b")}
    assert len(names) == 2
    assert max(map(len, names)) <= 200


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *((text, True) for text in ("joe", "a@b.c-d", "auth0|1", "...")),
        *((text, False) for text in ("", "a/b", "a\n", ".", "..", "__admin", "__admin\n")),
    ],
)
def test_a_subject_is_a_name_without_a_number(text: str, answer: bool) -> None:
    assert is_subject(text) is answer


def test_a_receiver_has_one_name_that_people_read() -> None:
    for queue, shown, group in (
        ("group:/jobs/* workers", "/jobs/* workers", ("/jobs/*", "workers")),
        ("client/joe", "client/joe", None),
    ):
        assert shown_name(queue) == shown
        assert group_called(shown) == group_of(queue) == group
        assert queue_of(shown) == queue
    assert shown_name("client/joe/1") == "client/joe/1"
    assert queue_of("client/joe/1") == ""
