"""That the check of the documentation's prose finds what it is for, and only that."""

import pytest

from docs.prose import LONGEST, STYLE, Page, faults, notes, rules, words_to_avoid

TABLE = rules(
    "| avoid | write | why |\n| --- | --- | --- |\n"
    "| `letter`, `letters`, not in `dead letter` | dead letter | standard |\n"
    "| `goes on` | continue | plain |\n"
)
GOOD = "# Pages\n\nThis page explains pages.\n\n"


def faults_of(text: str, path: str = "docs/page.md") -> list[str]:
    return faults(Page(path, text), TABLE)


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
    found = words_to_avoid(Page("app/crewel/kept.py", notes(source)), TABLE)
    assert sorted(line for line, _ in found) == [3, 6, 11]
