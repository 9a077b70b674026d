"""Accounts: that only those with a count are kept."""

from crewel.limits import OVERFLOW, UNLIMITED, Accounts, Rate

RATE = Rate(10, 5)


def rate_of(kind: str) -> Rate:
    return UNLIMITED if kind == "off" else RATE


def test_an_account_is_the_same_as_long_as_it_has_something() -> None:
    accounts = Accounts(10)
    account = accounts.of("a")
    account.sessions = 1
    accounts.of("b")
    assert accounts.of("b").take("publishes", RATE, 5, 0.0) == 0.0
    sweep(accounts, 0.1)
    assert accounts.of("a") is account
    assert accounts.of("b").take("publishes", RATE, 1, 0.1) == 0.0, (
        "one token has come back, and the bucket is the same"
    )
    assert accounts.of("b").take("publishes", RATE, 1, 0.1) > 0
    sweep(accounts, 0.7)
    assert len(accounts) == 1, "the full bucket of a holder without sessions is forgotten"
    account.sessions = 0
    sweep(accounts, 0.7)
    assert len(accounts) == 0


def test_a_rate_that_is_off_takes_no_tokens_and_keeps_no_account() -> None:
    accounts = Accounts(10)
    assert accounts.of("a").take("off", UNLIMITED, 10**9, 0.0) == 0.0
    accounts.of("a").take("publishes", RATE, 1, 0.0)
    accounts.of("a").bucket("off", RATE, 0.0).spend(5)
    sweep(accounts, 0.2)
    assert len(accounts) == 0


def test_newcomers_share_one_account_when_there_are_too_many() -> None:
    accounts = Accounts(2)
    first, second = accounts.of("a"), accounts.of("b")
    third = accounts.of("c")
    assert third is accounts.of("d")
    assert third.name == OVERFLOW
    assert accounts.of("a") is first
    assert accounts.of("b") is second
    assert len(accounts) == 3


def test_a_sweep_looks_at_so_many_accounts_and_the_next_at_others() -> None:
    accounts = Accounts(100)
    for number in range(10):
        accounts.of(str(number))
    accounts.sweep(rate_of, 0.0, 4)  # begins the round
    accounts.sweep(rate_of, 0.0, 4)
    assert len(accounts) == 6
    accounts.sweep(rate_of, 0.0, 10)
    assert len(accounts) == 0


def sweep(accounts: Accounts, now: float) -> None:
    """A whole round: the first call may end the one before."""
    accounts.sweep(rate_of, now, 1000)
    accounts.sweep(rate_of, now, 1000)
