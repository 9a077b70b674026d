"""Codes that work once, and the cookie of a page that is signed in."""

from __future__ import annotations

import time

import pytest

from crewel.security import sign_in
from crewel.security.bad_token import BadToken
from crewel.security.grants import Grants, Role
from crewel.security.sign_in import PAGE_S, SignIns, code
from crewel.security.tokens import AdminToken


class Remembered:
    """Remembers in memory what is spent."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def begin(self, id_: str) -> None:
        assert id_ not in self.ids

    async def is_spent(self, id_: str) -> bool:
        return id_ in self.ids

    async def use(self, id_: str, until: float) -> bool:
        assert until > time.time()
        is_new = id_ not in self.ids
        self.ids.add(id_)
        return is_new

    async def end(self, id_: str, until: float) -> None:
        await self.use(id_, until)


TOKEN = "the-admin-token-of-tests"
JOE = Grants("joe", role=Role.OPERATE)


@pytest.fixture
def admin() -> AdminToken:
    token = AdminToken()
    token.know(TOKEN)
    return token


async def test_code_is_accepted_once(admin: AdminToken) -> None:
    signing, text = SignIns(admin, Remembered()), code(TOKEN)
    assert (await signing.enter(text)).role is Role.DESTROY
    with pytest.raises(BadToken, match="has been used"):
        await signing.enter(text)


async def test_code_of_another_token_or_none_is_refused(admin: AdminToken) -> None:
    for text in (code("another-admin-token"), "", "x.y.z", "\ud800", SignIns(admin, Remembered()).seal(JOE)[0]):
        with pytest.raises(BadToken, match="not this server's"):
            await SignIns(admin, Remembered()).enter(text)


async def test_code_expires(admin: AdminToken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "CODE_S", -1)
    signing = SignIns(admin, Remembered())
    with pytest.raises(BadToken, match="expired"):
        await signing.enter(code(TOKEN))


async def test_cookie_brings_back_the_operator_also_after_a_restart(admin: AdminToken) -> None:
    value, expires = SignIns(admin, Remembered()).seal(JOE)
    found = await SignIns(admin, Remembered()).read(value)
    assert (found.subject, found.role) == ("joe", Role.OPERATE)
    assert found.expires_at == pytest.approx(expires, abs=1)
    assert expires - time.time() == pytest.approx(PAGE_S, abs=60)


async def test_cookie_ends_with_the_token_that_it_came_from(admin: AdminToken) -> None:
    end = time.time() + 100
    _, expires = SignIns(admin, Remembered()).seal(Grants("joe", role=Role.VIEW, expires_at=end))
    assert expires == pytest.approx(end, abs=1)
    value, _ = SignIns(admin, Remembered()).seal(Grants("joe", role=Role.VIEW, expires_at=time.time() - 5))
    with pytest.raises(BadToken, match="expired"):
        await SignIns(admin, Remembered()).read(value)


async def test_new_admin_token_ends_all_sign_ins(admin: AdminToken) -> None:
    value, _ = SignIns(admin, Remembered()).seal(JOE)
    admin.know("another-admin-token")
    with pytest.raises(BadToken):
        await SignIns(admin, Remembered()).read(value)


async def test_server_without_a_token_accepts_the_codes_of_none() -> None:
    with pytest.raises(BadToken):
        await SignIns(AdminToken(), Remembered()).enter(code(""))


async def test_signed_out_cookie_is_refused(admin: AdminToken) -> None:
    signing = SignIns(admin, Remembered())
    value, _ = signing.seal(JOE)
    await signing.leave(value)
    with pytest.raises(BadToken, match="signed out"):
        await signing.read(value)
    with pytest.raises(BadToken, match="signed out"):
        await signing.leave(value)
