"""Sign-ins of operators' pages at random, at two servers of one store that end and are killed: a code signs in once, and a page
that has signed out is out everywhere, for good."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from crewel.broker.sessions.sign_outs import SignOuts
from crewel.security.bad_token import BadToken
from crewel.security.sign_in import SignIns, code
from crewel.security.tokens import AdminToken
from tests.broker.stored_world import MakeStored, StoredWorld

TOKEN: Final = "the-token-of-the-operators"
SEEDS: Final = range(3)
STEPS: Final = 60


class Servers:
    """Two servers of one store: each has a memory of its own of what was spent."""

    def __init__(self, make_stored: MakeStored) -> None:
        self._make = make_stored
        self._begin(make_stored())

    def _begin(self, world: StoredWorld) -> None:
        self.world, sessions, admin = world, world.broker.sessions, AdminToken()
        admin.know(TOKEN)
        other = SignOuts(world.broker.runtime, sessions.table, sessions.by_id)
        self.all = [SignIns(admin, sessions.sign_outs), SignIns(admin, other)]

    def again(self, *, is_killed: bool) -> None:
        """Both end, and begin again."""
        (self.world.crash if is_killed else self.world.close)()
        self._begin(self._make(prefix=self.world.prefix))

    def enter(self, text: str) -> list[str]:
        """The values of the cookies that a code gives when it is shown to both at a time."""

        async def enter(server: SignIns) -> str | None:
            try:
                return server.seal(await server.enter(text))[0]
            except BadToken:
                return None

        async def enter_both() -> list[str | None]:
            return await asyncio.gather(*map(enter, self.all))

        return [each for each in self.world.wait(enter_both()) if each is not None]

    def accepts(self, cookie: str) -> list[bool]:
        async def accept(server: SignIns) -> bool:
            try:
                await server.read(cookie)
            except BadToken:
                return False
            return True

        return [self.world.wait(accept(each)) for each in self.all]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_spent_at_one_server_is_spent_at_all(make_stored: MakeStored, seed: int) -> None:
    rng, servers = random.Random(seed), Servers(make_stored)
    codes, used, pages, out = [code(TOKEN) for _ in range(8)], set[str](), list[str](), list[str]()
    for _ in range(STEPS):
        what = rng.choice(["enter", "enter", "read", "read", "leave", "again"])
        if what == "enter":
            text = rng.choice(codes)
            given = servers.enter(text)
            assert len(given) == (text not in used)
            used.add(text)
            pages += given
        elif what == "again":
            servers.again(is_killed=rng.random() < 0.5)
        elif what == "leave" and pages:
            page = pages.pop(rng.randrange(len(pages)))
            servers.world.wait(rng.choice(servers.all).leave(page))
            out.append(page)
        for page in pages:
            assert servers.accepts(page) == [True, True]
        for page in out:
            assert servers.accepts(page) == [False, False]
    assert used
    assert out
