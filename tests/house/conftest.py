"""The wheel that several modules look at."""

from pathlib import Path

import pytest

from tests.house.wheels import built, copied, source_of
from tests.shared_files import made_once


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a release has it: made from the source distribution, which is made from a checkout."""

    def make(directory: Path) -> None:
        checkout = copied(tmp_path_factory.mktemp("checkout"))
        built(source_of(checkout), directory)

    (made,) = made_once(tmp_path_factory, "wheel", make).iterdir()
    return made
