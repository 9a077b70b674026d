"""Follow branches only while tests run, not while pytest does: `make test-pure` then takes half as long.

pytest-cov follows everything from its start to its end. `uncounted` marks tests whose branches do not count.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from typing import Any, Final

import pytest

_TRACE: Final = pytest.StashKey[Any]()
"""What follows the branches."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop following when all modules have been imported."""
    session.config.stash[_TRACE] = sys.gettrace()
    sys.settrace(None)
    gc.freeze()  # what has been imported stays
    gc.set_threshold(20_000)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Follow a test that counts."""
    if item.get_closest_marker("uncounted"):
        return (yield)
    sys.settrace(item.config.stash[_TRACE])
    try:
        return (yield)
    finally:
        sys.settrace(None)
