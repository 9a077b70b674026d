"""Checks the documentation with the stock rules of proselint: `python docs/stock_prose.py`, a step of `make check`.

docs/prose.py has the project's own words; these rules are those of style guides for English: clichés, redundancy, archaisms,
misspellings, words that are often confused. They read the same text, without code and the targets of links.
"""

import sys
from collections.abc import Iterator

from prose import Page, pages
from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

OFF = ("typography", "lexical_illusions", "misc.phrasal_adjectives")
"""Straight quotes and `...` are usual in Markdown, `resume` is a verb, tables repeat words, `exactly-once` is the term."""


def faults(page: Page) -> Iterator[str]:
    """Yield what is wrong with a page, `path:line: fault` each."""
    # The library looks one character beyond the last quotation mark.
    file = LintFile(page.path, f"{page.prose}\n\n")
    for found in file.lint():
        if not found.check_result.check_path.startswith(OFF):
            yield f"{page.path}:{found.pos[0]}: {found.check_result.message} ({found.check_result.check_path})"


def main() -> int:
    """Print the faults of all pages; return 1 if there are any."""
    CheckRegistry().register_many(__register__)
    found = [fault for page in pages() for fault in faults(page)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
