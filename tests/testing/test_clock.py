"""Virtual time."""

import asyncio
from collections.abc import Iterator

import pytest

from crewel.testing.clock import VirtualLoop, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (5, 5),
        (0.5, 0.5),
        ("110s", 110),
        ("3h", 10800),
        ("1h 30m", 5400),
        ("250ms", 0.25),
        ("2min", 120),
        ("1.5d", 129600),
    ],
)
def test_a_duration_is_seconds_or_a_text(text: float | str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "3 weeks", "3h and more", "-1s", -1, float("inf"), float("nan"), True])
def test_what_is_no_duration_is_refused_by_name(text: float | str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds_of(text)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.mark.server  # a loop has a socket pair of its own
def test_timers_of_hours_fire_at_once_and_in_order(loop: VirtualLoop) -> None:
    fired: list[str] = []

    async def run() -> None:
        loop.call_later(7200, fired.append, "second")
        loop.call_later(3600, fired.append, "first")
        cancelled = loop.call_later(1800, fired.append, "never")
        cancelled.cancel()
        loop.skip(10_000)
        while len(fired) < 2:
            await asyncio.sleep(0)

    loop.run_until_complete(asyncio.wait_for(run(), 20_000))
    assert fired == ["first", "second"]
    assert loop.skipped == 10_000
