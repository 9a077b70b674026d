"""Grants: which channels a list of patterns covers."""

from dataclasses import replace

import orjson
import pytest

from crewel.bayeux.channel import parse
from crewel.security.grants import OPERATOR, Grants, Role, Scope, patterns, restored_grants, scope_of, subjects


@pytest.mark.parametrize(
    ("granted", "asked", "answer"),
    [
        (["/a"], "/a", True),
        (["/a"], "/a/b", False),
        (["/a/*"], "/a/b", True),
        (["/a/*"], "/a/*", True),
        (["/a/*"], "/a/b/c", False),
        (["/a/*"], "/a/**", False),
        (["/a/**"], "/a/*", True),
        (["/a/**"], "/a/**", True),
        (["/a/**"], "/a/b/*", True),
        (["/a/**"], "/a", False),
        (["/**"], "/a/b/c", True),
        (["/*"], "/**", False),
        (["/**"], "/service/x", True),
        (["/b", "/a/b"], "/a/b", True),
        ([], "/a", False),
    ],
)
def test_a_channel_is_granted_if_a_pattern_covers_all_of_it(granted: list[str], asked: str, answer: bool) -> None:
    channel = parse(asked)
    assert channel is not None
    grants = Grants("joe", subscribe=patterns(granted))
    assert grants.may_subscribe(channel) is answer
    assert not grants.may_publish(channel)
    assert Grants("joe", publish=patterns(granted)).may_publish(channel) is answer


@pytest.mark.parametrize("text", ["", "a", "/a//b", 5, None, ["/a"]])
def test_grant_of_no_pattern_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is not a channel"):
        patterns([text])


def test_grants_end_at_their_time_or_never() -> None:
    grants = Grants("joe", expires_at=100.0)
    assert not grants.has_expired(99.9)
    assert grants.has_expired(100.0)
    assert not replace(grants, expires_at=None).has_expired(1e12)


def test_grants_survive_json() -> None:
    grants = Grants("joe", frozenset({"/a", "/b/*"}), frozenset({"/c"}), role=Role.OPERATE, expires_at=5.5)
    assert Grants.from_json(orjson.loads(orjson.dumps(grants.as_json()))) == grants
    assert Grants.from_json(OPERATOR.as_json()) == OPERATOR


def test_what_a_policy_said_survives_json_and_counts_nothing_where_tokens_are_asked_for() -> None:
    stored = orjson.loads(orjson.dumps(Grants("joe", by_policy=True).as_json()))
    assert restored_grants(stored, asks_for_tokens=False) == Grants("joe", by_policy=True)
    assert restored_grants(stored, asks_for_tokens=True) is None
    assert restored_grants(Grants("joe").as_json(), asks_for_tokens=True) == Grants("joe")
    assert restored_grants(None, asks_for_tokens=True) is None


@pytest.mark.parametrize(
    ("address", "subject", "answer"),
    [(["joe"], "joe", True), (["joe"], "ann", False), (["*"], "ann", True), ([], "joe", False)],
)
def test_addressing_is_granted_by_subject(address: list[str], subject: str, answer: bool) -> None:
    assert Grants("eve", address=subjects(address)).may_address(subject) is answer


@pytest.mark.parametrize("text", ["", "joe/1", "client/joe", "**", 5, None])
def test_grant_of_no_subject_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is neither a subject nor"):
        subjects([text])


def test_no_two_subjects_have_one_identity() -> None:
    names = ["joe", "joe ", "__admin", "", "team: red", "team:red", "\ud800"]
    assert len({Grants(name).identity for name in names}) == len(names)
    assert Grants("joe").identity == "joe"
    assert OPERATOR.identity == "__admin"


# The roles of operators


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (True, Scope(Role.DESTROY)),
        ("view", Scope(Role.VIEW)),
        ("nothing", Scope()),
        (["view"], Scope(Role.VIEW)),
        ([], Scope()),
        ("operate:/orders/**", Scope(None, ((Role.OPERATE, frozenset({"/orders/**"})),))),
        (["view", "destroy:/orders/*"], Scope(Role.VIEW, ((Role.DESTROY, frozenset({"/orders/*"})),))),
    ],
)
def test_a_claim_names_roles_and_where_they_hold(claim: object, expected: Scope) -> None:
    assert scope_of(claim) == expected
    assert scope_of(expected.as_claim()) == expected


@pytest.mark.parametrize("claim", ["opreate:/orders/**", "view:orders", ["view", "opreate"], [5], [["view"]], "view:"])
def test_a_role_that_is_misspelled_is_an_error_and_no_role(claim: object) -> None:
    with pytest.raises(ValueError, match="is not a"):
        scope_of(claim)


@pytest.mark.parametrize(
    ("channel", "role"),
    [
        ("/orders/new", Role.OPERATE),
        ("/orders/a/b", Role.OPERATE),
        ("/orders/*", Role.OPERATE),
        ("/orders/**", Role.OPERATE),
        ("/stock/flour", Role.VIEW),
        ("/stock/a/b", None),
        ("/stock/**", None),
        ("/orders", None),
        ("/**", None),
    ],
)
def test_a_role_holds_for_the_channels_and_patterns_that_its_pattern_covers(channel: str, role: Role | None) -> None:
    parsed = parse(channel)
    assert parsed is not None
    scope = scope_of(["operate:/orders/**", "view:/stock/*"])
    assert max((each for each in Role if scope.allows(each, parsed)), default=None) is role
