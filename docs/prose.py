"""Checks the prose of the documentation: `python docs/prose.py`, a step of `make check`.

The words to avoid are the table of docs/contributing/style.md. Code, links'
targets and, for the length of sentences, tables do not count as prose. Of
the modules, docstrings and comments are checked for words, and docstrings for
the length of sentences.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
STYLE = ROOT / "docs" / "contributing" / "style.md"
OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "extensions/README.md")
"""The pages that are not in docs/. Pages that a program writes, such as results, are not checked."""
FRONTS = ("README.md", "docs/home.md")
"""The pages that introduce Crewel, and not themselves."""
MODULES = (ROOT / "app" / "crewel", ROOT / "extensions")
NAMED = "settle"
"""In code this word stands for the client's `settle` and the field of that name, which comprise acknowledging and rejecting."""
LONGEST = 45
"""Words in a sentence of a page."""
LONGEST_IN_DOCSTRING = 30
OPENING = re.compile(r"This page \w+")

_CODE_BLOCK = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+)(?:(?!`).)+?\1(?!`)", re.DOTALL)
_TARGET = re.compile(r"\]\([^)\s]*\)|<https?://[^>]*>")
_BLOCK = re.compile(r"^(?:[ ]*(?:[-*]|\d+\.) |#+ |\||\[\w+\]: )|^\s*$", re.MULTILINE)
_SENTENCE = re.compile(r"[.!?][\"')*_]*(?=\s|$)")
_BEFORE_STATEMENT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
_WORD = re.compile(r"[^\W_][\w'.,-]*")


@dataclass(frozen=True)
class Rule:
    """A row of the table: what to avoid, and what to write instead."""

    avoid: re.Pattern[str]
    write: str


@dataclass(frozen=True)
class Page:
    """A page by its path from the top of the repository, with its text."""

    path: str
    text: str

    @cached_property
    def prose(self) -> str:
        """The text without code, comments and link targets; each line stays on its line."""
        without_blocks = _COMMENT.sub(_lines_only, _CODE_BLOCK.sub(_lines_only, self.text))
        return _TARGET.sub("]", _CODE.sub(lambda code: "Code" + _lines_only(code), without_blocks))

    def line(self, offset: int) -> int:
        """Return the line number of a place in the prose."""
        return self.prose.count("\n", 0, offset) + 1


def _lines_only(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def rules(style: str) -> list[Rule]:
    """Return the rows of the table of words in the style guide."""
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \| [^|]+ \|$", style, re.MULTILINE)
    return [Rule(_pattern(*avoid.partition(", not in ")[::2]), write) for avoid, write in rows]


def _pattern(avoid: str, allowed: str) -> re.Pattern[str]:
    """Match any of the phrases over line breaks, and skip those that are allowed."""
    skipped, phrases = (
        "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in re.findall("`([^`]+)`", cell)) or "(?!)"
        for cell in (allowed, avoid)
    )
    return re.compile(rf"\b(?:{skipped})\b|\b(?P<avoid>{phrases})\b", re.IGNORECASE)


def words_to_avoid(page: Page, table: list[Rule]) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of each phrase of the table."""
    for rule in table:
        for found in rule.avoid.finditer(page.prose):
            if phrase := found["avoid"]:
                yield page.line(found.start()), f"`{' '.join(phrase.split())}`: write {rule.write}"


def opening(page: Page) -> Iterator[tuple[int, str]]:
    """Yield a fault unless the page begins with its heading and one sentence that says what it is for. Decisions have a form
    of their own, and the README and the front of the site introduce Crewel itself."""
    heading, _, rest = page.prose.partition("\n")
    if not heading.startswith("# "):
        yield 1, "begin with a heading"
    first = rest.lstrip()
    if page.path.startswith("docs/decisions/") or page.path in FRONTS:
        return
    if not (OPENING.match(first) and _SENTENCE.search(first.partition("\n\n")[0])):
        yield 3, "begin with one sentence that says what the page is for: `This page ...`"


def long_sentences(page: Page, longest: int = LONGEST) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of each sentence with too many words, outside of tables."""
    edges = [block.start() for block in _BLOCK.finditer(page.prose)] + [len(page.prose)]
    for start, end in zip([0, *edges], edges, strict=False):
        if page.prose[start:end].startswith("|"):
            continue
        begin = start
        for stop in [*(found.end() for found in _SENTENCE.finditer(page.prose, start, end)), end]:
            words = [*_WORD.finditer(page.prose, begin, stop)]
            if len(words) > longest:
                yield page.line(words[0].start()), f"{len(words)} words in a sentence, at most {longest}: divide it"
            begin = stop


def faults(page: Page, table: list[Rule]) -> list[str]:
    """Return what is wrong with a page, `path:line: fault` each."""
    found = [*words_to_avoid(page, table), *opening(page), *long_sentences(page)]
    return [f"{page.path}:{line}: {fault}" for line, fault in sorted(found)]


def faults_of_module(path: str, source: str, table: list[Rule]) -> list[str]:
    """Return what is wrong with the docstrings and comments of a module, `path:line: fault` each."""
    docstrings = Page(path, notes(source, comments=False))
    found = [*words_to_avoid(Page(path, notes(source)), table), *long_sentences(docstrings, LONGEST_IN_DOCSTRING)]
    return [f"{path}:{line}: {fault}" for line, fault in sorted(found)]


def pages() -> list[Page]:
    """Return all pages that are checked."""
    files = [*(ROOT / name for name in OTHERS), *(ROOT / "docs").rglob("*.md")]
    return [Page(file.relative_to(ROOT).as_posix(), file.read_text("utf-8")) for file in sorted(files)]


def notes(source: str, *, comments: bool = True) -> str:
    """Return the docstrings and `comments` of a module, each on its line, and nothing else of it."""
    lines = [""] * (source.count("\n") + 1)
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and before in _BEFORE_STATEMENT
        if is_docstring or (comments and token.type == tokenize.COMMENT):
            for number, line in enumerate(token.string.strip('#"').splitlines(), token.start[0] - 1):
                lines[number] = line
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return "\n".join(lines)


def modules() -> list[tuple[str, str]]:
    """Return all modules: the path of each, and its source."""
    files = sorted(file for folder in MODULES for file in folder.rglob("*.py"))
    return [(file.relative_to(ROOT).as_posix(), file.read_text("utf-8")) for file in files]


def main() -> int:
    """Print the faults of all pages and modules; return 1 if there are any."""
    table = rules(STYLE.read_text("utf-8"))
    found = [fault for page in pages() for fault in faults(page, table)]
    of_modules = [rule for rule in table if not rule.avoid.search(NAMED)]
    found += [fault for path, source in modules() for fault in faults_of_module(path, source, of_modules)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
