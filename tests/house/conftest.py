"""The wheel that several modules look at."""

from pathlib import Path

import pytest

from tests.house.wheels import built, copied, source_of


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a release has it: made from the source distribution, which is made from a checkout."""
    checkout = copied(tmp_path_factory.mktemp("checkout"))
    (made,) = built(source_of(checkout), checkout / "wheels").iterdir()
    return made
