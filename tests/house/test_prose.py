"""That the check of the documentation's prose finds what it is for, and only that."""

import pytest

from docs.prose import LONGEST, LONGEST_IN_DOCSTRING, STYLE, Page, faults, faults_of_module, rules

TABLE = rules(
    "| avoid | write | why |\n| --- | --- | --- |\n"
    "| `letter`, `letters`, not in `dead letter` | dead letter | standard |\n"
    "| `goes on` | continue | plain |\n"
)
GOOD = "# Pages\n\nThis page explains pages.\n\n"


def faults_of(text: str, path: str = "docs/page.md") -> list[str]:
    return faults(Page(path, text), TABLE)


def lines_of_faults(source: str) -> list[int]:
    return [int(fault.split(":")[1]) for fault in faults_of_module("app/crewel/kept.py", source, TABLE)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("The letter is stored.", 5),
        ("A dead letter.\nOne Letter.", 6),
        ("```\nthe code\n```\n\nIt goes\non.", 9),
        ("| name | meaning |\n| --- | --- |\n| `x` | goes on |", 7),
        ("- " + "word " * (LONGEST + 1), 5),
    ],
)
def test_a_fault_is_found_on_its_line(text: str, line: int) -> None:
    found = faults_of(GOOD + text)
    assert [fault.split(": ")[0] for fault in found] == [f"docs/page.md:{line}"]


@pytest.mark.parametrize(
    "text",
    [
        "A dead letter is stored. Letterhead.",
        "The field `letter` and the link [dead](letters.md#the-letter).",
        "```console\n$ crewel letter goes on\n```",
        "<!-- the letter -->",
        ("word " * LONGEST + ".\n") * 2,
        "- " + "word " * LONGEST + "\n- " + "word " * LONGEST,
        "| " + "word " * (LONGEST + 1) + "|",
    ],
)
def test_code_and_tables_are_no_sentences(text: str) -> None:
    assert faults_of(GOOD + text) == []


@pytest.mark.parametrize(
    "text",
    ["Text.", "# Pages\n\n## Part\n", "# Pages\n\n- a list", "# Pages\n\nThis page\n\nends.", "# Pages\n\nFor you."],
)
def test_a_page_must_say_what_it_is_for(text: str) -> None:
    assert faults_of(text)


def test_the_readme_may_begin_as_it_likes() -> None:
    assert faults_of("# Crewel\n\nA server.", "README.md") == []


def test_every_row_of_the_style_guide_is_a_rule() -> None:
    table = STYLE.read_text("utf-8").partition("| avoid |")[2]
    assert len(rules(STYLE.read_text("utf-8"))) == table.count("\n| `") > 20


def test_docstrings_and_comments_of_a_module_are_prose_and_nothing_else_of_it_is() -> None:
    source = (
        '"""A module.\n\nIt goes\non."""\n\n'
        'letter = "letter"  # its letter\n\n\n'
        'class Kept:\n    letter: str\n    """The letter."""\n'
    )
    assert lines_of_faults(source) == [3, 6, 11]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""A module.\n\n{}\n"""\n', 3),
        ('class Kept:\n    """One.\n\n    - {}"""\n', 4),
        ('def keep() -> None:\n    """Keep it. {}"""\n', 2),
        ('LIMIT = 3\n"""{}"""\n', 2),
    ],
)
def test_a_long_sentence_of_a_docstring_is_found_on_its_line(source: str, line: int) -> None:
    assert lines_of_faults(source.format("word " * LONGEST_IN_DOCSTRING)) == []
    assert lines_of_faults(source.format("word " * (LONGEST_IN_DOCSTRING + 1))) == [line]


@pytest.mark.parametrize(
    "source",
    [
        '"""{0}.\n\n{0}"""\n',
        '"""- {0}\n- {0}\n"""\n',
        '"""Such as `{0}{0}`."""\n',
        'LIMIT = 3\n"""{0}"""\n# {0}\n# {0}\n',
        'text = """{0}{0}"""\n',
    ],
)
def test_items_code_comments_and_values_are_no_long_sentence_of_a_docstring(source: str) -> None:
    assert lines_of_faults(source.format("word " * LONGEST_IN_DOCSTRING)) == []
