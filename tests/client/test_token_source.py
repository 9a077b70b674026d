"""Where a token comes from: when a function is asked, how often, and what becomes of its failures."""

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from crewel.client import TokenUnavailableError
from crewel.client.token_source import Tokens, check_token, expiry_of
from tests.security.issuer import signed

NOW = 1_000_000.0


def unsigned(claims: object) -> str:
    """Return what only looks like a token."""
    return f"head.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.signature"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Issuer:
    """Gives these tokens one after another, the last one again and again; fails instead of giving an exception."""

    def __init__(self, *tokens: Any) -> None:
        self.tokens = list(tokens)
        self.asked = 0

    async def __call__(self) -> Any:
        self.asked += 1
        token = self.tokens[min(self.asked, len(self.tokens)) - 1]
        if isinstance(token, BaseException):
            raise token
        return token


async def settled(tokens: Tokens) -> None:
    """Let the question that is under way have its answer."""
    task = tokens._asking
    assert task is not None
    await task


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        (unsigned({"exp": 17}), 17.0),
        (unsigned({"exp": 17.5}), 17.5),
        (signed(exp=1_900_000_000), 1_900_000_000.0),
        (unsigned({}), None),
        (unsigned({"exp": None}), None),
        (unsigned({"exp": "soon"}), None),
        (unsigned({"exp": 10**400}), None),
        (unsigned([17]), None),
        (unsigned(17), None),
        ("head.%%%.signature", None),
        ("head.e30.signature", None),
        ("no token", None),
        ("two.parts", None),
        ("", None),
        ("a secret of an operator", None),
    ],
)
def test_a_token_says_when_it_expires(token: str, expiry: float | None) -> None:
    assert expiry_of(token) == expiry


def test_what_is_no_token_is_not_said() -> None:
    check_token("token", "x")
    check_token("token", lambda: "x")
    with pytest.raises(TypeError, match="token is a string, or a function that returns one, not bytes") as raised:
        check_token("token", b"secret")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("given", [None, "secret"])
async def test_a_token_that_was_given_stays(given: str | None) -> None:
    tokens = Tokens(given, 5)
    assert [await tokens.take(), tokens.renew(), tokens.refused(), tokens.may_change] == [
        given,
        float("inf"),
        False,
        False,
    ]
    assert await tokens.take() == given


async def test_a_function_may_be_a_coroutine_function_or_wait_in_a_thread() -> None:
    called: list[threading.Thread] = []

    def plain() -> str:
        called.append(threading.current_thread())
        return "plain"

    async def coroutine() -> str:
        called.append(threading.current_thread())
        return "coroutine"

    def later() -> Awaitable[str]:
        return coroutine()

    assert [await Tokens(each, 5).take() for each in (plain, coroutine, later, lambda: None)] == [
        "plain",
        "coroutine",
        "coroutine",
        None,
    ]
    assert [each is threading.main_thread() for each in called] == [False, True, True]


async def test_a_token_is_used_again_until_it_is_refused() -> None:
    issuer = Issuer("first", "second", "third")
    tokens = Tokens(issuer, 5)
    assert [await tokens.take(), await tokens.take(), issuer.asked] == ["first", "first", 1]
    assert tokens.refused() is True
    assert await tokens.take() == "second"
    assert tokens.refused() is False  # it came at once
    assert await tokens.take() == "third"


@pytest.mark.parametrize(
    ("life", "chance", "pause"), [(3600, 0, 3540), (3600, 1, 3570), (100, 0, 75), (100, 1, 87.5), (1, 0, 1), (-5, 0, 1)]
)
async def test_the_next_token_is_asked_for_before_the_last_one_expires(life: int, chance: float, pause: float) -> None:
    clock, issuer = Clock(), Issuer(unsigned({"exp": NOW + life}), unsigned({"exp": NOW + 2 * life, "n": 2}))
    tokens = Tokens(issuer, 5, clock, lambda: chance)
    first = await tokens.take()
    assert tokens.renew() == pause
    clock.now += pause
    assert 0 < tokens.renew() == tokens.renew() <= 1  # asked once
    await settled(tokens)
    assert (issuer.asked, tokens.is_renewed) == (2, True)
    assert await tokens.take() == unsigned({"exp": NOW + 2 * life, "n": 2}) != first
    assert (issuer.asked, tokens.is_renewed) == (2, False)


async def test_a_token_without_an_end_is_not_asked_for_again() -> None:
    tokens = Tokens(Issuer("secret"), 5)
    await tokens.take()
    assert tokens.renew() == float("inf")


async def test_a_token_that_is_due_at_a_handshake_is_asked_for_first() -> None:
    clock, issuer = Clock(), Issuer(unsigned({"exp": NOW + 100}), "next")
    tokens = Tokens(issuer, 5, clock, lambda: 0)
    await tokens.take()
    clock.now += 75
    assert await tokens.take() == "next"


async def test_a_function_that_returns_the_same_token_is_asked_again_later() -> None:
    clock, issuer = Clock(), Issuer(unsigned({"exp": NOW + 100}))
    tokens = Tokens(issuer, 5, clock, lambda: 0)
    await tokens.take()
    clock.now += 75
    tokens.renew()
    await settled(tokens)
    assert tokens.is_renewed is False
    assert tokens.renew() == 25 * 0.75


async def test_a_function_that_fails_is_asked_again_while_the_last_token_is_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, first = Clock(), unsigned({"exp": NOW + 100})
    tokens = Tokens(Issuer(first, OSError("no back end"), "next"), 5, clock, lambda: 0)
    await tokens.take()
    clock.now += 75
    tokens.renew()
    await settled(tokens)
    assert "no back end" in caplog.text
    assert (tokens.is_renewed, tokens.renew()) == (False, 25 * 0.75)
    clock.now += 25 * 0.75
    tokens.renew()
    await settled(tokens)
    assert (tokens.is_renewed, await tokens.take()) == (True, "next")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ValueError("no such user"), "failed: ValueError: no such user"),
        (KeyError(), "failed: KeyError$"),
        (TimeoutError("of its own"), "failed: TimeoutError: of its own"),
        (asyncio.CancelledError(), "failed: RuntimeError: what it waited for was cancelled"),
        (SystemExit("no password"), "failed: SystemExit: no password"),
        (TokenUnavailableError("said by itself"), "^said by itself$"),
        (7, "returned int, not a string"),
        (b"x", "returned bytes, not a string"),
    ],
)
async def test_what_goes_wrong_is_said(answer: Any, text: str) -> None:
    with pytest.raises(TokenUnavailableError, match=text):
        await Tokens(Issuer(answer), 5).take()


def leave() -> str:
    sys.exit("no password")


def cancel() -> str:
    raise asyncio.CancelledError


def stop() -> str:
    raise StopIteration


def interrupt() -> str:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (leave, "failed: SystemExit: no password"),
        (cancel, "failed: RuntimeError: what it waited for was cancelled"),
        (stop, "failed: RuntimeError: .*StopIteration"),
        (interrupt, "failed: KeyboardInterrupt"),
    ],
)
async def test_what_a_plain_function_raises_ends_neither_the_client_nor_the_program(
    function: Callable[[], str], text: str
) -> None:
    with pytest.raises(TokenUnavailableError, match=text):
        await Tokens(function, 5).take()


async def test_an_error_of_an_http_library_does_not_show_its_request() -> None:
    """Which had a password."""
    headers = CIMultiDictProxy(CIMultiDict({"Authorization": "Basic c2VjcmV0"}))
    url = URL("http://issuer/token")
    denied = aiohttp.ClientResponseError(
        aiohttp.RequestInfo(url, "POST", headers, url), (), status=401, message="Unauthorized", headers=headers
    )
    assert "c2VjcmV0" in repr(denied)
    with pytest.raises(
        TokenUnavailableError, match="failed: ClientResponseError: 401, message='Unauthorized'"
    ) as raised:
        await Tokens(Issuer(denied), 5).take()
    assert "c2VjcmV0" not in str(raised.value)


async def test_the_end_of_the_client_ends_its_question() -> None:
    begun = asyncio.Event()

    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    taking = asyncio.create_task(Tokens(wait, 5).take())
    await begun.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking


async def test_a_handshake_continues_with_the_last_token_while_that_holds(caplog: pytest.LogCaptureFixture) -> None:
    clock, first, away = Clock(), unsigned({"exp": NOW + 100}), OSError("no back end")
    issuer = Issuer(first, away, away, "next")
    tokens = Tokens(issuer, 5, clock, lambda: 0)
    await tokens.take()
    clock.now += 75
    assert [await tokens.take(), await tokens.take(), issuer.asked] == [first, first, 2]
    clock.now += 25 * 0.75
    assert (await tokens.take(), issuer.asked) == (first, 3)
    assert [each.levelname for each in caplog.records] == ["WARNING"], "one warning, however often it fails"
    assert tokens.refused() is True
    assert await tokens.take() == "next"


async def test_an_expired_token_is_not_shown_again() -> None:
    clock = Clock()
    tokens = Tokens(Issuer(unsigned({"exp": NOW + 100}), OSError("no back end")), 5, clock, lambda: 0)
    await tokens.take()
    clock.now += 100
    with pytest.raises(TokenUnavailableError, match="no back end"):
        await tokens.take()


async def test_a_function_that_never_returns_is_left() -> None:
    with pytest.raises(TokenUnavailableError, match=r"took longer than 0\.01 s"):
        await Tokens(lambda: asyncio.Event().wait(), 0.01).take()  # type: ignore[arg-type,return-value]


async def test_a_question_ends_with_the_client_and_with_the_next_handshake() -> None:
    clock, begun, answers = Clock(), asyncio.Event(), iter([unsigned({"exp": NOW + 100}), None, "third"])

    async def give() -> str:
        answer = next(answers)
        if answer is None:
            begun.set()
            await asyncio.Event().wait()
        return str(answer)

    tokens = Tokens(give, 5, clock, lambda: 0)
    await tokens.take()
    clock.now += 75
    tokens.renew()
    await begun.wait()
    assert await tokens.take() == "third"
    await tokens.stop()
