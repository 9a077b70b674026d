"""Names of sessions: what is one, and the form under which a session is kept."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.qos.names import MAX_NUMBER, Name, is_subject, parse_name
from tests.texts import texts

subjects = texts(string.ascii_letters + string.digits + ".@-", min_size=1, max_size=64)
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
        ("x" * 64, Name("x" * 64)),
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
        "x" * 65,
        "jo e",
        "jo_e",
        "jo:e",
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
    assert name is None or (is_subject(name.subject) and parse_name(name.relative) == Name(name.subject, name.number))


@pytest.mark.parametrize(
    ("text", "answer"), [("joe", True), ("a@b.c-d", True), ("", False), ("a/b", False), ("a\n", False)]
)
def test_a_subject_is_a_name_without_a_number(text: str, answer: bool) -> None:
    assert is_subject(text) is answer
