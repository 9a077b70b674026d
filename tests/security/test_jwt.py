"""The policy `jwt`: which tokens hold, what they grant, and that everything else is refused."""

import base64
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jwt
import pytest

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.message import Message
from crewel.broker.mailboxes.ledger import NoLedger
from crewel.broker.mailboxes.mailbox_listener import MailboxListener
from crewel.broker.session import Host, Session
from crewel.security.bad_token import ACCESS_DENIED, EXPIRED, BadToken
from crewel.security.grants import Grants, Role
from crewel.security.jwt import JwtPolicy
from crewel.security.jwt_tokens import Tokens
from crewel.security.policy import GRANTED, Refusal
from crewel.security.token_keys import load_keys
from crewel.settings import Settings
from crewel.settings.access import Security
from tests.security.issuer import SECRET, public_pem, rsa_key, secret_file, signed


def tokens(directory: Path, **more: object) -> Tokens:
    settings = Security.model_validate({"policy": "jwt", "jwt_keys": str(secret_file(directory)), **more})
    return Tokens(settings, load_keys(settings))


def read(directory: Path, token: str, **more: object) -> Grants:
    grants = tokens(directory, **more).read_at_once(token)
    assert grants is not None
    return grants


def channel(name: str) -> Channel:
    found = parse(name)
    assert found is not None
    return found


def unsigned(header: str, payload: str = '{"sub":"joe","exp":9999999999}') -> str:
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in (header, payload)) + "."


def test_a_token_grants_what_its_claims_say(tmp_path: Path) -> None:
    grants = read(tmp_path, signed(publish="/chat/demo", operator=True))
    assert (grants.subject, grants.is_operator) == ("joe", True)
    assert (grants.subscribe, grants.publish) == ({"/chat/**"}, {"/chat/demo"})
    assert grants.expires_at is not None
    assert grants.expires_at > time.time() + 3600


def test_a_claim_that_is_missing_grants_nothing(tmp_path: Path) -> None:
    grants = read(tmp_path, signed(subscribe=None, publish=None))
    assert (grants.subscribe, grants.publish, grants.is_operator) == (frozenset(), frozenset(), False)


@pytest.mark.parametrize("value", [1, "true", "VIEW", "", [], {}])
def test_no_other_value_makes_an_operator(tmp_path: Path, value: object) -> None:
    assert not read(tmp_path, signed(operator=value)).is_operator


@pytest.mark.parametrize(
    ("value", "role"), [(True, Role.DESTROY), ("destroy", Role.DESTROY), ("operate", Role.OPERATE), ("view", Role.VIEW)]
)
def test_role_of_an_operator_is_in_the_claim(tmp_path: Path, value: object, role: Role) -> None:
    assert read(tmp_path, signed(operator=value)).role is role


def test_the_claims_have_the_names_that_the_settings_say(tmp_path: Path) -> None:
    names = {"subject": "user", "subscribe": "hears", "publish": "says", "operator": "https://example.org/admin"}
    more = {f"jwt_{name}_claim": claim for name, claim in names.items()}
    claims = {"sub": None, "user": "ann", "hears": ["/a"], "says": ["/b"], "https://example.org/admin": True}
    grants = read(tmp_path, signed(**claims), **more)
    assert (grants.subject, grants.subscribe, grants.publish, grants.is_operator) == ("ann", {"/a"}, {"/b"}, True)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": None}, 'missing the "exp" claim'),
        ({"sub": None}, 'missing the "sub" claim'),
        ({"sub": ""}, "sub must be a non-empty string"),
        ({"sub": 5}, "."),
        ({"exp": "soon"}, "."),
        ({"nbf": int(time.time()) + 3600}, "not yet valid"),
        ({"aud": "somebody"}, r"\(security.jwt_audience\)"),
        ({"subscribe": ["/a//b"]}, "claim subscribe: '/a//b' is not"),
        ({"publish": 5}, "claim publish: 5 is not"),
        ({"publish": [["/a"]]}, "claim publish"),
    ],
)
def test_a_token_that_does_not_hold_is_refused_with_the_reason(
    tmp_path: Path, claims: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadToken, match=told) as caught:
        read(tmp_path, signed(**claims))
    assert caught.value.code == ACCESS_DENIED


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "....",
        "\u00e9.\u00e9.\u00e9",
        "\ud800",
        signed("an" + SECRET),
        signed()[:-4] + "AAAA",
        signed() + "x" * 8192,
        unsigned('{"alg":"none"}'),
        unsigned('{"alg":"HS256"}'),
        unsigned('{"alg":"HS256","kid":5}'),
        unsigned('{"alg":["HS256"]}'),
        unsigned("[]"),
        unsigned('{"alg":"HS256"}', "[]"),
        signed(algorithm="HS384"),
    ],
)
def test_whatever_is_no_good_token_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(BadToken) as caught:
        read(tmp_path, token)
    assert caught.value.code == ACCESS_DENIED
    assert not token or token not in str(caught.value)


async def test_before_it_has_keys_no_token_holds(tmp_path: Path) -> None:
    settings = Security.model_validate({"policy": "jwt", "jwt_keys": str(secret_file(tmp_path))})
    with pytest.raises(BadToken, match="not ready") as caught:
        await Tokens(settings).read(signed())
    assert caught.value.code == "resource.unavailable"


def test_a_public_key_is_no_secret(tmp_path: Path) -> None:
    """Whoever signs with the public key as if it were a shared secret has signed nothing."""
    file = tmp_path / "key.pem"
    file.write_bytes(public_pem(rsa_key()))
    settings = Security.model_validate({"policy": "jwt", "jwt_keys": str(file)})
    header, payload, _ = jwt.encode({"sub": "joe", "exp": 9999999999}, SECRET, "HS256").split(".")
    import hashlib
    import hmac

    digest = hmac.digest(public_pem(rsa_key()), f"{header}.{payload}".encode(), hashlib.sha256)
    forged = f"{header}.{payload}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
    with pytest.raises(BadToken):
        Tokens(settings, load_keys(settings)).read_at_once(forged)


def test_a_token_ends_at_exp_and_the_leeway_after_it(tmp_path: Path) -> None:
    old = signed(exp=int(time.time()) - 60)
    with pytest.raises(BadToken, match="has expired") as caught:
        read(tmp_path, old)
    assert caught.value.code == EXPIRED
    assert read(tmp_path, old, jwt_leeway_ms=3600000).subject == "joe"


def test_audience_and_issuer_are_asked_for_where_they_are_set(tmp_path: Path) -> None:
    more = {"jwt_audience": "crewel,other", "jwt_issuer": "https://id.example.org"}
    assert read(tmp_path, signed(aud="crewel", iss="https://id.example.org"), **more).subject == "joe"
    assert read(tmp_path, signed(aud=["x", "other"], iss="https://id.example.org"), **more).subject == "joe"
    for claims in ({}, {"aud": "crewel"}, {"aud": "x", "iss": "https://id.example.org"}, {"aud": "crewel", "iss": "x"}):
        with pytest.raises(BadToken):
            read(tmp_path, signed(**claims), **more)


class TestPolicy:
    @pytest.fixture
    def policy(self, tmp_path: Path) -> JwtPolicy:
        return JwtPolicy(tokens(tmp_path))

    def session(self) -> Session:
        ledger = NoLedger(cast("MailboxListener", SimpleNamespace(bounds=None)))
        return Session(cast("Host", SimpleNamespace(settings=Settings(), no_ledger=ledger)), "secret")

    def shake(self, policy: JwtPolicy, session: Session, **fields: Any) -> Any:
        return policy.can_handshake(session, Message.read({"channel": "/meta/handshake", **fields}))

    @pytest.mark.parametrize(
        "fields",
        [{}, {"ext": {}}, {"ext": {"session": 5}}, {"ext": {"session": {"token": 5}}}]
        + [{"ext": {"session": {"token": token}}} for token in ("", "x", signed(exp=5))],
    )
    def test_without_a_token_that_holds_nobody_gets_in(self, policy: JwtPolicy, fields: dict[str, Any]) -> None:
        session = self.session()
        refusal = self.shake(policy, session, **fields)
        assert isinstance(refusal, Refusal)
        assert refusal.reconnect == "none"
        assert refusal.code.startswith("user.security.authentication.")
        assert refusal.message
        assert session.grants is None

    def test_the_session_has_what_its_token_grants_and_no_more(self, policy: JwtPolicy) -> None:
        session = self.session()
        assert self.shake(policy, session, ext={"session": {"token": signed()}}) is GRANTED
        message = Message.read({"channel": "/chat/demo"})
        demo, other, system = channel("/chat/demo"), channel("/chat/other"), channel("/__sys__deadMessage")
        assert policy.can_publish(session, demo, message) is True
        assert policy.can_publish(session, other, message) is False
        assert policy.can_subscribe(session, other, message) is True
        assert policy.can_create(session, other, message) is True
        assert policy.can_create(session, channel("/news"), message) is False
        assert policy.can_subscribe(session, channel("/**"), message) is False
        assert not any(ask(session, system, message) for ask in (policy.can_publish, policy.can_subscribe))

    def test_a_session_without_grants_may_nothing(self, policy: JwtPolicy) -> None:
        message = Message.read({"channel": "/chat/demo"})
        asked = (policy.can_publish, policy.can_subscribe, policy.can_create)
        assert not any(ask(self.session(), channel("/chat/demo"), message) for ask in asked)

    def test_when_the_token_has_expired_nothing_is_granted_any_more(self, policy: JwtPolicy) -> None:
        session = self.session()
        session.grants = Grants("joe", frozenset({"/**"}), frozenset({"/**"}), expires_at=time.time() - 1)
        answer = policy.can_publish(session, channel("/a"), Message.read({"channel": "/a"}))
        assert answer == Refusal("token_expired")

    async def test_keys_that_have_to_be_fetched_first_are_waited_for(
        self, policy: JwtPolicy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(policy.tokens, "read_at_once", lambda token: None)
        session = self.session()
        assert await self.shake(policy, session, ext={"session": {"token": signed()}}) is GRANTED
        assert session.grants is not None
        refusal = await self.shake(policy, self.session(), ext={"session": {"token": "x"}})
        assert refusal.code == ACCESS_DENIED
