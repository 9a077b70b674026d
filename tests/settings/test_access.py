"""The settings about who may do what."""

import pytest

from crewel.settings import SettingsError, load
from crewel.settings.table import shown, value_of

NONE: dict[str, str] = {}


def test_the_policy_jwt_needs_keys() -> None:
    with pytest.raises(SettingsError, match=r"^security\.policy=jwt needs security\.jwt_keys$"):
        load(overrides=["security.policy=jwt"], environ=NONE)
    assert load(overrides=["security.policy=jwt", "security.jwt_keys=k"], environ=NONE).security.policy == "jwt"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("security.jwt_algorithms=RS256,EdDSA", ("RS256", "EdDSA")),
        ("security.jwt_algorithms=", ()),
        ("security.jwt_audience=a, b", ("a", "b")),
        ("security.jwt_operator_claim=https://example.org/operator", "https://example.org/operator"),
        ("security.jwt_issuer=", None),
        ("admin.token=", None),
    ],
)
def test_text_becomes_the_typed_value(override: str, expected: object) -> None:
    assert value_of(load(overrides=[override], environ=NONE), override.partition("=")[0]) == expected


@pytest.mark.parametrize(
    "override",
    [
        "security.policy=closed",
        "security.jwt_algorithms=none",
        "security.jwt_algorithms=RS256 HS256",
        "security.jwt_subject_claim=",
        "security.jwt_publish_claim=a b",
        "security.jwt_leeway_ms=-1",
        "security.jwt_refresh_ms=999",
    ],
)
def test_impossible_access_setting_is_explained(override: str) -> None:
    with pytest.raises(SettingsError, match=f"--set {override.partition('=')[0]}: "):
        load(overrides=[override], environ=NONE)


def test_the_admin_token_is_not_shown() -> None:
    settings = load(overrides=["admin.token=a-secret-of-some-length"], environ=NONE)
    assert "secret" not in str(shown(settings, "admin.token"))


def test_a_short_admin_token_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"admin\.token: .*at least 16 characters") as refused:
        load(overrides=["admin.token=fifteen-letters"], environ=NONE)
    assert "fifteen" not in str(refused.value)
    assert load(overrides=["admin.token=sixteen--letters"], environ=NONE).admin.token == "sixteen--letters"
