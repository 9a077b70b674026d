"""The names of the keys, and the table that tells about them."""

import re

from crewel.storage.keys import KEYS, Keys


def all_names(keys: Keys) -> dict[str, str]:
    """Return each family as the table names it, and what `keys` makes of it."""
    plain = {
        name: getattr(keys, name) for name in ("format", "log", "last", "names", "epoch", "nodes", "dead", "facts")
    }
    families = {
        "node:<token>": keys.node("abc"),
        "own:<token>": keys.own("abc"),
        "s:<session>": keys.session("client/joe/1"),
        "inbox:<session>": keys.inbox("client/joe/1"),
        "subject:<subject>": keys.subject("joe"),
        "k:<scope>": keys.once("/a joe 7"),
    }
    return plain | families


def test_each_key_of_the_table_can_be_named_and_no_other() -> None:
    assert set(all_names(Keys("crewel:"))) == {key.name for key in KEYS}


def test_names_are_the_prefix_the_tag_and_what_the_table_says() -> None:
    for family, name in all_names(Keys("mine:")).items():
        pattern = re.escape(family).replace(r"<", "(?P<").replace(r">", ">.+)")
        assert re.fullmatch(r"mine:\{crewel\}:" + pattern, name), (family, name)


def test_all_keys_lie_in_one_slot_of_a_cluster() -> None:
    """A cluster hashes what stands between the first braces; a prefix cannot have any."""
    for name in all_names(Keys("mine:")).values():
        assert re.findall(r"\{(.*?)\}", name)[0] == "crewel"


def test_the_table_says_everything_about_each_key() -> None:
    for key in KEYS:
        assert all((key.type, key.fields, key.lifetime, key.written_by, key.read_by, key.meaning)), key.name
        assert key.type in {"string", "hash", "set", "stream"}
