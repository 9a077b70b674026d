"""Later tries of a failed test, which pytest-rerunfailures makes: each gets the whole time limit of a test.

pytest-timeout starts one clock for all tries of a test, and stops it at the first failure: a later try that hangs would hang
for ever.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

_LIMIT: Final = pytest.StashKey[Any]()
"""The settings of the clock of a test, as pytest-timeout passes them."""


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    """Remember the time limit; pytest-timeout starts the clock."""
    item.stash[_LIMIT] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the clock again before each try but the first."""
    if getattr(item, "execution_count", 1) > 1 and _LIMIT in item.stash:
        clock = item.config.pluginmanager.hook
        clock.pytest_timeout_cancel_timer(item=item)
        clock.pytest_timeout_set_timer(item=item, settings=item.stash[_LIMIT])
