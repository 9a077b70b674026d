"""Reads pages of the report."""

from __future__ import annotations

from html.parser import HTMLParser

SINGLE = {"meta", "br", "input"}


class Reader(HTMLParser):
    """Knows the text, the names of tags and attributes, and whether each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.parts: list[str] = []
        self.feed(text)
        assert self.open == []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}
        if tag not in SINGLE:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.parts.append(data)
