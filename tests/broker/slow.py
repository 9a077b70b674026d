"""Answers that are a long time on their way."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest


class Slow:
    """A coroutine function of a module, whose answers are held back from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
        self.begun, self.ends = asyncio.Event(), asyncio.Event()
        """The first answer is there; all of them are given."""
        ask = getattr(module, name)

        async def late(*asked: Any) -> Any:
            found = await ask(*asked)
            self.begun.set()
            await self.ends.wait()
            return found

        monkeypatch.setattr(module, name, late)
