"""Rules for topics: how they are named and written in each source, and what a person is told who wrote something else."""

import json
from pathlib import Path

import pytest

from crewel.settings import Settings, SettingsError, load
from crewel.settings.table import declared_rules, rules_of
from crewel.settings.topic_rules import rule_name, split_rule_name
from tests.cli.command import crewel

NONE: dict[str, str] = {}


def from_toml(directory: Path, text: str) -> Settings:
    (directory / "some.toml").write_text(text)
    return load(directory / "some.toml", environ=NONE)


def from_set(*overrides: str) -> Settings:
    return load(overrides=overrides, environ=NONE)


def test_without_rules_there_are_none() -> None:
    assert rules_of(load(environ=NONE)) == {}


@pytest.mark.parametrize(
    "text",
    [
        '[topics."/chat/**"]\npersistent = true\nhistory.max_entries = 200\n',
        '[topics]\n"/chat/**" = { persistent = true, history = { max_entries = 200 } }\n',
        '[topics."/chat/**"]\n"history.max_entries" = 200\npersistent = true\n',
        '[topics."/chat/**"]\nhistory.maxEntries = 200\npersistent = true\n',
    ],
)
def test_a_rule_is_a_table_in_the_file(tmp_path: Path, text: str) -> None:
    settings = from_toml(tmp_path, text)
    name = 'topics."/chat/**".history.max_entries'
    assert rules_of(settings) == {'topics."/chat/**".persistent': True, name: 200}
    assert settings.source(name) == "toml"
    assert settings.source('topics."/chat/**".priority') == "default"


def test_in_the_environment_all_rules_are_one_text_of_json() -> None:
    rules = {"/a": {"persistent": True}, "/b/*": {"history": {"maxEntries": 5}, "lifeTime": 7}}
    settings = load(environ={"CREWEL_TOPICS": json.dumps(rules)})
    assert rules_of(settings) == {
        'topics."/a".persistent': True,
        'topics."/b/*".life_time_ms': 7,
        'topics."/b/*".history.max_entries': 5,
    }
    assert settings.source('topics."/a".persistent') == "env"


@pytest.mark.parametrize(
    "override",
    [
        'topics."/a.b/*".history.max_entries=5',
        "topics./a.b/*.history.max_entries=5",
        "topics./a.b/*.history.maxEntries=5",
        'topics={"/a.b/*": {"history": {"max_entries": 5}}}',
    ],
)
def test_the_command_line_names_one_or_gives_all_as_json(override: str) -> None:
    settings = from_set(override)
    assert rules_of(settings) == {'topics."/a.b/*".history.max_entries': 5}
    assert settings.source('topics."/a.b/*".history.max_entries') == "--set"


def test_a_later_source_has_the_last_word_about_each_field(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('[topics."/a"]\npersistent = true\npriority = 1\nhistory.max_entries = 1\n')
    environ = {"CREWEL_TOPICS": '{"/a": {"priority": 2, "history": {"max_entries": 2}}}'}
    settings = load(file, ["topics./a.priority=3"], environ)
    found = {name: (value, settings.source(name)) for name, value in rules_of(settings).items()}
    assert found == {
        'topics."/a".persistent': (True, "toml"),
        'topics."/a".priority': (3, "--set"),
        'topics."/a".history.max_entries': (2, "env"),
    }


@pytest.mark.parametrize(
    ("given", "value"), [("0", 0), ("9", 9), ("MIN", 0), ("low", 3), ("Norm", 5), ("HIGH", 7), ("MAX", 9)]
)
def test_a_priority_is_a_number_or_a_name(given: str, value: int) -> None:
    assert from_set(f"topics./a.priority={given}").topics["/a"].priority == value


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ('topics."/a".persistent', ("/a", "persistent")),
        ("topics./a.persistent", ("/a", "persistent")),
        ("topics./a.b.c.persistent", ("/a.b.c", "persistent")),
        ("topics./a.lifeTime", ("/a", "life_time_ms")),
        ("topics./a.life_time", ("/a", "life_time_ms")),
        ("topics./a.destroyDelay", ("/a", "destroy_delay_ms")),
        ("topics./history.max_entries.history.max_entries", ("/history.max_entries", "history.max_entries")),
        ("topics.persistent", None),
        ("topics", None),
        ("bayeux.timeout_ms", None),
    ],
)
def test_the_name_of_a_rule_says_for_which_pattern_which_field(name: str, split: tuple[str, str] | None) -> None:
    assert split_rule_name(name) == split
    if split is not None:
        assert split_rule_name(rule_name(*split)) == split


@pytest.mark.parametrize(
    "override",
    [
        "topics./a.b/*.groups.keep=cooks,waiters",
        'topics="/a.b/*".groups.keep=["cooks", "waiters"]'.replace("=", ".", 1),
        'topics={"/a.b/*": {"groups": {"keep": ["cooks", "waiters"]}}}',
    ],
)
def test_groups_that_are_kept_are_a_list_of_names(override: str) -> None:
    assert rules_of(from_set(override)) == {'topics."/a.b/*".groups.keep': ("cooks", "waiters")}


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("topics./a.groups.keep=a b", "'a b' is not possible: expected names of groups"),
        ("topics./a.groups=cooks", "a rule for topics has no such field; did you mean groups.keep?"),
        ("topics./a.persistant=true", "a rule for topics has no such field; did you mean persistent?"),
        ("topics./a.colour=red", "a rule for topics has no such field; known are persistent, priority, "),
        ("topics./a.history=3", "a rule for topics has no such field; known are "),
        ("topics.chat.persistent=true", 'expected a channel or pattern and a field, such as topics."/chat/**".history'),
        ("topics./a.persistent=maybe", "topics.\"/a\".persistent: 'maybe' is not possible: expected true or false"),
        (
            "topics./a.priority=10",
            "'10' is not possible: expected a whole number from 0 to 9, or one of MIN, LOW, NORM",
        ),
        ("topics./a.life_time_ms=-2", "'-2' is not possible: expected a whole number of milliseconds, -1 or more"),
        ("topics./a.history.max_entries=-1", "expected a whole number of messages, 0 or more"),
        ("topics=no", "--set topics: is not JSON: "),
        ("topics=3", "--set topics: expected a table for each channel or pattern"),
        ('topics={"/a": 3}', '--set topics: expected a table of fields for "/a"'),
        ('topics={"/a": {"priority": true}}', 'topics."/a".priority: True is not possible'),
    ],
)
def test_what_is_impossible_is_told_in_one_line(override: str, told: str) -> None:
    with pytest.raises(SettingsError) as error:
        from_set(override)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_the_environment_and_the_file_tell_it_alike(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r'^CREWEL_TOPICS: topics."/a".priority: 77 is not possible'):
        load(environ={"CREWEL_TOPICS": '{"/a": {"priority": 77}}'})
    with pytest.raises(SettingsError, match=r"^CREWEL_TOPICS: is not JSON"):
        load(environ={"CREWEL_TOPICS": "{"})
    with pytest.raises(SettingsError, match=r"some.toml: topics: topics.\"/a\".colour: a rule for topics has no such"):
        from_toml(tmp_path, '[topics."/a"]\ncolour = 1\n')
    with pytest.raises(SettingsError, match=r"some.toml: topics: expected a table"):
        from_toml(tmp_path, "topics = 3\n")


@pytest.mark.server
def test_crewel_settings_lists_the_rules_behind_the_settings(tmp_path: Path) -> None:
    (tmp_path / "crewel.toml").write_text('[topics."/chat/**"]\nhistory.max_entries = 200\n')
    ended = crewel("settings", "--json", directory=tmp_path)
    assert json.loads(ended.out.splitlines()[-1]) == {
        "name": 'topics."/chat/**".history.max_entries',
        "value": 200,
        "unit": "messages",
        "default": 0,
        "source": "toml",
        "live": False,
        "why": declared_rules()["history.max_entries"].why,
    }
