"""The fixture `salesforce`, for a `conftest.py` that says `pytest_plugins = ["crewel.mock.plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from crewel.testing.plugin import mark_options

if TYPE_CHECKING:
    from crewel.mock.salesforce import Salesforce


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    mark = "salesforce(**options): the stand-in of the fixture `salesforce`, as crewel.mock.Salesforce takes them"
    config.addinivalue_line("markers", mark)


@pytest.fixture
def salesforce(request: pytest.FixtureRequest) -> Iterator[Salesforce]:
    """A stand-in for Salesforce's streaming API for this test: `crewel.mock.Salesforce` explains it."""
    from crewel.mock.salesforce import Salesforce

    with Salesforce(**mark_options(request, "salesforce")) as org:
        yield org
