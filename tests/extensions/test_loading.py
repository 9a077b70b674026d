"""Loading extensions: by the name of one that Crewel brings, or as `package.module:Class`."""

import pytest

from crewel.errors import SettingsError
from crewel.extension import Extension
from crewel.extensions.timestamp import TimestampExtension
from crewel.server import BUILT_IN, load_extensions


class Mine(Extension):
    """An extension of somebody else's."""


class NeedsMore(Extension):
    """One that cannot be made without being told something."""

    def __init__(self, more: str) -> None:
        self.more = more


def test_each_that_crewel_brings_knows_its_name() -> None:
    names = list(BUILT_IN)
    assert [extension.name for extension in load_extensions(names)] == names


def test_others_come_by_module_and_class_in_the_order_given() -> None:
    loaded = load_extensions([f"{__name__}:Mine", "timestamp"])
    assert [type(extension) for extension in loaded] == [Mine, TimestampExtension]


def test_none_is_none() -> None:
    assert load_extensions([]) == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("acks", "there is no extension 'acks'.*ack"),
        ("nowhere.module:Class", "cannot be loaded"),
        (f"{__name__}:Missing", "cannot be loaded"),
        (f"{__name__}:NeedsMore", "cannot be loaded"),
        ("collections:OrderedDict", "is not a crewel.Extension"),
        (f"{__name__}:", "there is no extension"),
    ],
)
def test_what_there_is_not_is_told_by_name(name: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load_extensions([name])
