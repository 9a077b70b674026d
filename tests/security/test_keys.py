"""The keys that tokens are verified with: what a file can hold, and sets that are fetched."""

import asyncio
import datetime as dt
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.x509.oid import NameOID

from crewel.errors import SettingsError
from crewel.security import token_keys as keys_module
from crewel.security.bad_token import BadToken
from crewel.security.jwt_tokens import Tokens
from crewel.security.token_keys import load_keys
from crewel.settings.access import Security
from tests.security.issuer import SECRET, ec_key, key_set, other_rsa_key, public_pem, rsa_key, secret_file, signed


def settings(keys: Path | str, **more: object) -> Security:
    return Security.model_validate({"policy": "jwt", "jwt_keys": str(keys), **more})


async def tokens(keys: Path | str, **more: object) -> Tokens:
    made = Tokens(settings(keys, **more))
    await made.open()
    return made


def certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(rsa_key().public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(rsa_key(), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


async def test_a_file_can_hold_a_secret(tmp_path: Path) -> None:
    assert (await (await tokens(secret_file(tmp_path))).read(signed())).subject == "joe"


@pytest.mark.parametrize("content", [lambda: public_pem(rsa_key()), certificate])
async def test_a_file_can_hold_a_public_key_or_a_certificate(tmp_path: Path, content: Callable[[], bytes]) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(content())
    reader = await tokens(file)
    assert (await reader.read(signed(rsa_key(), "RS256"))).subject == "joe"
    with pytest.raises(BadToken, match="Signature verification failed"):
        await reader.read(signed(other_rsa_key(), "RS256"))


async def test_a_file_can_hold_a_set_and_the_token_names_its_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(key_set(one=rsa_key(), two=ec_key()))
    reader = await tokens(file)
    assert (await reader.read(signed(rsa_key(), "RS256", "one"))).subject == "joe"
    assert reader.read_at_once(signed(ec_key(), "ES256", "two")) is not None
    for key_id in ("three", None):
        with pytest.raises(BadToken, match="does not know"):
            await reader.read(signed(rsa_key(), "RS256", key_id))
    with pytest.raises(BadToken, match="is not valid"):
        await reader.read(signed(rsa_key(), "RS256", "two"))


async def test_the_only_key_of_a_set_needs_no_name(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(key_set(one=rsa_key()))
    assert (await (await tokens(file)).read(signed(rsa_key(), "RS256"))).subject == "joe"


@pytest.mark.parametrize(
    ("content", "more", "told"),
    [
        (b"too short", {}, "at least 32 bytes"),
        (b"", {}, "at least 32 bytes"),
        (b"-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----\n", {}, "no public key"),
        (b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n", {}, "no public key"),
        (b'{"keys": ', {}, "keys.bin"),
        (b'{"keys": []}', {}, "not a JWK set"),
        (b'{"keys": [5]}', {}, "not a JWK set"),
        (b'{"other": []}', {}, "not a JWK set"),
        (b"thirty-two bytes, and not 64 of them", {"jwt_algorithms": ("HS256", "HS512")}, "at least 64 bytes"),
        (SECRET.encode(), {"jwt_algorithms": ("RS256",)}, "for public keys"),
        ("public", {"jwt_algorithms": ("RS256", "HS256")}, "one for secrets"),
    ],
)
def test_unusable_key_is_reported_at_the_start(
    tmp_path: Path, content: bytes | str, more: dict[str, object], told: str
) -> None:
    file = tmp_path / "keys.bin"
    file.write_bytes(public_pem(rsa_key()) if isinstance(content, str) else content)
    with pytest.raises(SettingsError, match=told):
        load_keys(settings(file, **more))


def test_a_file_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_keys(settings(tmp_path / "missing"))


class Address:
    """A server of a JWK set."""

    def __init__(self) -> None:
        self.text = key_set(one=rsa_key())
        self.status = 200
        self.asked = 0
        self.url = ""
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        await self.may_answer.wait()
        return web.Response(text=self.text, status=self.status)


@pytest.fixture
async def published_keys() -> AsyncIterator[Address]:
    served = Address()
    app = web.Application()
    app.router.add_get("/keys", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{port}/keys"
    yield served
    served.may_answer.set()
    await runner.cleanup()


async def test_a_set_with_an_address_is_fetched_once_for_all_who_ask(published_keys: Address) -> None:
    reader = await tokens(published_keys.url)
    token = signed(rsa_key(), "RS256", "one")
    assert reader.read_at_once(token) is None
    async with asyncio.timeout(5):
        read = await asyncio.gather(*(reader.read(token) for _ in range(20)))
    assert {grants.subject for grants in read} == {"joe"}
    assert published_keys.asked == 1
    assert reader.read_at_once(token) is not None


async def test_cancelled_caller_leaves_the_fetch_to_others(published_keys: Address) -> None:
    published_keys.may_answer.clear()
    reader = await tokens(published_keys.url)
    token = signed(rsa_key(), "RS256", "one")
    first = asyncio.create_task(reader.read(token))
    second = asyncio.create_task(reader.read(token))
    async with asyncio.timeout(5):
        while not published_keys.asked:
            await asyncio.sleep(0)
        first.cancel()
        published_keys.may_answer.set()
        assert (await second).subject == "joe"
    assert published_keys.asked == 1


async def test_a_key_that_is_not_in_the_set_is_looked_for_but_not_all_the_time(
    published_keys: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await tokens(published_keys.url)
    await reader.read(signed(rsa_key(), "RS256", "one"))
    published_keys.text = key_set(one=rsa_key(), two=other_rsa_key())
    new = signed(other_rsa_key(), "RS256", "two")
    with pytest.raises(BadToken, match="does not know"):
        await reader.read(new)
    assert published_keys.asked == 1
    monkeypatch.setattr(keys_module, "_PAUSE_S", 0.0)
    assert (await reader.read(new)).subject == "joe"
    assert published_keys.asked == 2


@pytest.mark.parametrize(
    ("key_id", "has_name"),
    [(None, True), (None, False), ("one", True), ("one", False)],
    ids=["a token without a name", "no names", "the same name", "a key without a name"],
)
async def test_another_key_in_the_place_of_the_only_one_is_looked_for_but_not_all_the_time(
    published_keys: Address, monkeypatch: pytest.MonkeyPatch, key_id: str | None, *, has_name: bool
) -> None:
    """A rotation that no name shows: the signature does not fit, and the set may be another one by now."""
    published_keys.text = _set_of(rsa_key(), has_name=has_name)
    reader = await tokens(published_keys.url)
    old, new = (signed(key, "RS256", key_id) for key in (rsa_key(), other_rsa_key()))
    assert (await reader.read(old)).subject == "joe"
    published_keys.text = _set_of(other_rsa_key(), has_name=has_name)
    with pytest.raises(BadToken, match="Signature verification failed"):
        await reader.read(new)
    assert published_keys.asked == 1, "it was fetched just now"
    monkeypatch.setattr(keys_module, "_PAUSE_S", 0.0)
    assert reader.read_at_once(new) is None
    assert (await reader.read(new)).subject == "joe"
    assert published_keys.asked == 2
    with pytest.raises(BadToken, match="Signature verification failed"):
        await reader.read(old)
    monkeypatch.setattr(keys_module, "_PAUSE_S", 10.0)
    asked = published_keys.asked
    for _ in range(3):
        with pytest.raises(BadToken, match="Signature verification failed"):
            await reader.read(old)
    assert published_keys.asked == asked


def _set_of(key: RSAPrivateKey, *, has_name: bool) -> str:
    named = json.loads(key_set(one=key))
    if not has_name:
        del named["keys"][0]["kid"]
    return json.dumps(named)


async def test_a_set_is_fetched_again_when_it_is_old_and_a_failure_leaves_the_keys(
    published_keys: Address, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keys_module, "_PAUSE_S", 0.0)
    reader = await tokens(published_keys.url)
    token = signed(rsa_key(), "RS256", "one")
    await reader.read(token)
    later = keys_module.monotonic() + 301
    monkeypatch.setattr(keys_module, "monotonic", lambda: later)
    published_keys.status = 500
    assert reader.read_at_once(token) is None
    with caplog.at_level(logging.WARNING):
        assert (await reader.read(token)).subject == "joe"
    assert "stay in use" in caplog.text
    published_keys.status = 200
    await reader.read(token)
    assert published_keys.asked == 3
    assert reader.read_at_once(token) is not None


@pytest.mark.parametrize("text", ["", "nonsense", '{"keys": []}', "[1]", " " * (1024 * 1024 + 1)])
async def test_no_token_holds_while_there_are_no_keys(published_keys: Address, text: str) -> None:
    published_keys.text = text
    with pytest.raises(BadToken, match="are not available") as caught:
        await (await tokens(published_keys.url)).read(signed(rsa_key(), "RS256", "one"))
    assert caught.value.code == "resource.unavailable"


async def test_an_address_where_nobody_is_gives_no_keys(published_keys: Address, unused_tcp_port: int) -> None:
    with pytest.raises(BadToken, match="are not available"):
        await (await tokens(f"http://127.0.0.1:{unused_tcp_port}/")).read(signed(rsa_key(), "RS256", "one"))


async def test_no_line_of_the_log_has_credentials_of_the_address(
    published_keys: Address, caplog: pytest.LogCaptureFixture
) -> None:
    published_keys.status = 500
    reader = await tokens(published_keys.url.replace("//", "//joe:geheim@") + "?key=geheim")
    with caplog.at_level(logging.WARNING), pytest.raises(BadToken):
        await reader.read(signed(rsa_key(), "RS256", "one"))
    assert f"the keys of {published_keys.url.replace('//', '//***@')}?*** cannot be fetched" in caplog.text
    assert "geheim" not in caplog.text


@pytest.mark.parametrize("url", ["http://joe:geheim@127.0.0.1:port/keys?key=geheim", "http://joe:geheim@/keys?geheim"])
async def test_no_line_of_the_log_has_an_address_that_is_none(url: str, caplog: pytest.LogCaptureFixture) -> None:
    reader = await tokens(url)
    with caplog.at_level(logging.WARNING), pytest.raises(BadToken):
        await reader.read(signed(rsa_key(), "RS256", "one"))
    assert "cannot be fetched" in caplog.text
    assert "geheim" not in caplog.text
