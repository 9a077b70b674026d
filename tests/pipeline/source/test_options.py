"""The options of the source, and what is said of wrong ones."""

import pytest

from crewel.errors import SettingsError
from crewel.pipeline.source.options import OPTIONS, parsed
from crewel.pipeline.source.positions import BEGIN, END, EntryId


def test_without_any_option_it_reads_facts_and_events_from_the_beginning() -> None:
    options = parsed({})
    assert options.streams == ("facts", "events")
    assert (options.start, options.end) == (BEGIN, END)
    assert options.fails_on_loss
    assert not options.notes_positions
    assert options.max_rows == 0


def test_letters_of_names_may_be_of_any_case() -> None:
    """Spark does not keep it."""
    assert parsed({"maxrows": "7", "FAILONDATALOSS": "False"}).max_rows == 7


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", BEGIN),
        ("latest", END),
        ("1790000000000-3", EntryId(1790000000000, 3)),
        ("1790000000000", EntryId.before(1790000000000)),
        ("2026-09-21T13:33:20Z", EntryId.before(1789997600000)),
        ("2026-09-21T15:33:20+02:00", EntryId.before(1789997600000)),
        ("2026-09-21", EntryId.before(1789948800000)),
        ("0", BEGIN),
    ],
)
def test_a_place_is_an_id_or_a_time(text: str, place: EntryId) -> None:
    assert parsed({"start": text}).start == place


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("streams", "facts,logs", "there are facts, events, dead"),
        ("start", "yesterday", "earliest, latest, a time"),
        ("end", "earliest", "latest, a time"),
        ("maxRows", "-1", "no whole number"),
        ("partitions", "0", "no whole number from 1 on"),
        ("failOnDataLoss", "perhaps", "neither true nor false"),
        ("maxRow", "1", "did you mean maxRows"),
        ("url", "redis://joe:secret@store", "no such option"),
    ],
)
def test_a_wrong_option_is_refused_by_name(name: str, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"option {name}.*{words}"):
        parsed({name: text})


def test_each_option_says_what_it_does() -> None:
    assert all(option.meaning.endswith(".") for option in OPTIONS)
