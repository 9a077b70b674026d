"""Who may store how much, while room in the store is scarce."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crewel.broker.payers import payers_of, storing_account
from crewel.broker.session import Session
from crewel.broker.writing.stored_shares import StoredShares
from crewel.errors import Limited, StoreFull
from crewel.security.grants import OPERATOR, Grants
from tests.broker.world import Client, World

ROOM = 10_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.broker.runtime.access.store.is_scarce, world.broker.runtime.access.store.room = True, ROOM
    yield world
    world.close()


@pytest.fixture
def shares(world: World) -> StoredShares:
    return world.broker.runtime.stored_shares


def publisher(world: World, name: str = "", grants: Grants | None = None, *, is_exempt: bool = False) -> Session:
    session = Client(world).joined().session
    session.is_exempt = is_exempt
    if name:
        session.use_name(name)
    if grants is not None:
        session.authenticate(grants)
    return session


def stored(shares: StoredShares, session: Session | None, size: int) -> bool:
    """Whether it is accepted."""
    try:
        shares.admit(session, size)
    except Limited:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "grants", "is_exempt", "account"),
    [
        ("client/joe/1", Grants("ann"), False, "subject ann"),
        ("", Grants("ann"), True, "subject ann"),
        ("client/joe/1", None, False, "address 192.0.2.1"),
        ("", None, False, "address 192.0.2.1"),
        ("client/joe/1", None, True, "subject joe"),
        ("client/anonymous/-7", None, True, "address 192.0.2.1"),
        ("", None, True, "address 192.0.2.1"),
    ],
)
def test_an_account_is_a_proved_subject_or_an_address_or_where_many_share_that_a_name(
    world: World, name: str, grants: Grants | None, is_exempt: bool, account: str
) -> None:
    assert storing_account(publisher(world, name, grants, is_exempt=is_exempt)) == account


def test_dead_letters_and_stored_messages_call_an_account_alike(world: World) -> None:
    stranger, joe = publisher(world), Client(world)
    assert joe.handshake(ext={"session": {"name": "joe"}})["successful"]
    assert payers_of(stranger) == (storing_account(stranger),)
    joe.session.authenticate(Grants("joe"))
    assert payers_of(joe.session) == (storing_account(stranger), storing_account(joe.session))


def test_the_account_that_stores_most_is_refused_first_and_others_are_not(world: World, shares: StoredShares) -> None:
    flood, other = publisher(world, grants=Grants("eve")), publisher(world, grants=Grants("joe"))
    accepted = 0
    while stored(shares, flood, 100):
        accepted += 100
    left = world.broker.runtime.access.store.room
    assert left == ROOM - accepted
    assert accepted == pytest.approx(ROOM * 4 / 5, rel=0.05)  # four times what is left
    assert sum(stored(shares, other, 100) for _ in range(5)) == 5
    assert not stored(shares, flood, 1)
    assert world.broker.metrics.limited == {"max_stored_ratio": 2}


def test_several_accounts_leave_room_for_another_one(world: World, shares: StoredShares) -> None:
    for number in range(3):
        session = publisher(world, grants=Grants(f"joe{number}"))
        assert stored(shares, session, 10)
        while stored(shares, session, 10):
            pass
    assert stored(shares, publisher(world, grants=Grants("amy")), 10)


def test_the_refusal_says_who_has_how_much_and_the_setting(world: World, shares: StoredShares) -> None:
    shares._held["subject eve"] = 5 << 20
    with pytest.raises(Limited) as refused:
        shares.admit(publisher(world, grants=Grants("eve")), 1)
    assert refused.value.error == "429:limits.max_stored_ratio:resource.exhaust"
    assert "subject eve has 5.0 MiB of it, where one account may have 0.0 MiB" in refused.value.message


def test_operators_and_the_server_itself_are_not_refused(world: World, shares: StoredShares) -> None:
    for session in (publisher(world, grants=OPERATOR), None):
        for _ in range(4):
            assert stored(shares, session, ROOM // 10)


def test_a_ratio_of_0_is_no_limit(world: World, shares: StoredShares) -> None:
    world.broker.settings.limits.max_stored_ratio = 0
    assert stored(shares, publisher(world), ROOM)
    assert shares.most is None


def test_what_has_no_room_is_refused_as_by_a_full_store(world: World, shares: StoredShares) -> None:
    with pytest.raises(StoreFull):
        shares.admit(publisher(world), ROOM + 1)
