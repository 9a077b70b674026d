"""The names of the keys, and the table that tells about them."""

import re

from crewel.storage.dead_letter_keys import DEAD_LETTER_KEYS
from crewel.storage.keys import KEYS as OTHER_KEYS
from crewel.storage.keys import Keys
from crewel.storage.node_keys import NODE_KEYS
from crewel.storage.operator_keys import OPERATOR_KEYS
from crewel.storage.script_step import scripts

KEYS = (*OTHER_KEYS, *DEAD_LETTER_KEYS, *NODE_KEYS, *OPERATOR_KEYS)
ONLY_READ = {"channels", "fetch", "histories", "history", "members", "progress", "recall", "weigh"}


def all_names(keys: Keys) -> dict[str, str]:
    """Return each family as the table names it, and what `keys` makes of it."""
    plain = {
        name: getattr(keys, name)
        for name in (
            "format",
            "log",
            "last",
            "names",
            "epoch",
            "nodes",
            "kept",
            "tags",
            "secret",
            "dead",
            "facts",
            "events",
            "topics",
            "expiry",
            "queues",
            "alerts",
            "losses",
            "audit",
            "jobs",
            "restored",
            "scheduled",
        )
    } | {
        "backed-up": keys.backed_up,
        "dead:bin": keys.bin,
        "dead:bin:at": keys.binned_at,
        "dead:dropped": keys.dropped,
        "dead:returned": keys.returned,
    }
    plain |= {"dead:texts": keys.letter_texts, "dead:uses": keys.letter_uses, "dead:bytes": keys.letter_bytes}
    for store, shares in (("dead", keys.letter_shares), ("audit", keys.audit_shares), ("stored", keys.message_shares)):
        plain |= {f"{store}:held:entries": shares.entries, f"{store}:charged": shares.charged}
    plain |= {"stored:held:bytes": keys.message_shares.bytes}
    plain |= {"dead:held:bytes": keys.letter_shares.bytes, "dead:held:texts": keys.letter_shares.texts}
    plain |= {"scheduled:messages": keys.scheduled_messages, "scheduled:held": keys.scheduled_held}
    plain |= {"scheduled:refused": keys.scheduled_refused}
    plain |= {"jobs:open": keys.open_jobs, "server:events": keys.server_events}
    plain |= {"pipeline:positions": keys.positions, "pipeline:ledger": keys.ledger}
    for kind in ("code", "receiver", "channel"):
        plain |= {
            f"dead:{kind}:<{kind}>": keys.dead_letters_by(kind, "x"),
            f"dead:{kind}s": keys.dead_letter_values(kind),
        }
    families = {
        "node:<token>": keys.node("abc"),
        "dead:of:<account>": keys.letter_shares.of_account + "client/joe",
        "audit:of:<operator>": keys.audit_shares.of_account + "joe",
        "left:<token>": keys.left("abc"),
        "met:<generation>": keys.met("abc"),
        "copied:<connection>": keys.copied("abc"),
        "lease:<token>": keys.lease("abc"),
        "own:<token>": keys.own("abc"),
        "unstored:<token>": keys.unstored("abc"),
        "groups:<token>": keys.groups("abc"),
        "job:<id>": keys.job("1-1"),
        "s:<session>": keys.session("client/joe/1"),
        "inbox:<session>": keys.inbox("client/joe/1"),
        "subject:<subject>": keys.subject("joe"),
        "k:<scope>": keys.once("/a joe 7"),
        "spent:<id>": keys.spent("18f-abc"),
        "topic:<channel>": keys.topic("/a/b"),
        "h:<channel>": keys.history("/a/b"),
        "q:<queue>": keys.queue("group:/a/* workers"),
        "qb:<queue>": keys.queue_bodies("client/joe"),
        "members:<queue>": keys.members("group:/a/* workers"),
        "ptp:<id> <queue>": keys.receivers(17, "client/joe"),
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
        assert key.type in {"string", "hash", "set", "sorted set", "stream"}


def test_key_table_names_existing_scripts_and_every_script() -> None:
    without_script = {"format", "restored", "backed-up"}
    written = {key.name: set(re.split(r", ", key.written_by)) for key in KEYS if key.name not in without_script}
    known = {name for name in scripts() if not name.startswith("test_")} - ONLY_READ
    assert set.union(*written.values()) == known | {"the pipeline"}


def test_each_key_that_a_script_names_in_its_head_is_in_the_table() -> None:
    """A head says `KEYS[1]      node:<token>`."""
    names = {key.name for key in KEYS}
    for name, script in scripts().items():
        for said in re.findall(rb"^-- KEYS\[[^\]]*\] +(\S+)", script.text, re.MULTILINE):
            assert said.decode().rstrip(",;:") in names, (name, said)
