"""Promises: results that come later, without a task."""

from __future__ import annotations

import asyncio

import pytest

from crewel.broker.handler_steps import Promise


def test_a_function_is_called_when_the_promise_is_kept() -> None:
    promise, heard = Promise[int](), []
    promise.then(heard.append)
    promise.resolve(1)
    assert heard == [1]


def test_a_function_that_comes_late_is_called_at_once() -> None:
    promise, heard = Promise[int](), []
    promise.resolve(1)
    promise.then(heard.append)
    assert heard == [1]


async def test_a_promise_can_be_waited_for_before_and_after() -> None:
    promise = Promise[int]()
    waiting = asyncio.ensure_future(_result(promise))
    await asyncio.sleep(0)
    promise.resolve(1)
    assert await waiting == 1
    assert await promise == 1


async def test_who_waits_for_a_promise_that_failed_gets_the_exception() -> None:
    promise = Promise[int]()
    promise.resolve(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await promise


async def test_who_waits_no_more_is_left_alone() -> None:
    promise = Promise[int]()
    waiting = asyncio.ensure_future(_result(promise))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    promise.resolve(1)


async def _result(promise: Promise[int]) -> int:
    return await promise
