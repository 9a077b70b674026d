"""That the reference names everything that can be called."""

import pytest

import crewel
from crewel import client
from tests.house.source import ROOT

REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize(
    ("page", "names"), [("python-client", vars(client)), ("python-server", {})], ids=["client", "server"]
)
def test_every_public_name_is_in_the_reference(page: str, names: dict[str, object]) -> None:
    text = (REFERENCE / f"{page}.md").read_text("utf-8")
    public = [name for name in names if name[0].isupper()] or [name for home in crewel._HOMES.values() for name in home]
    assert len(public) > 10
    assert not [name for name in public if f".{name}\n" not in text]
