"""Texts of any characters for hypothesis: its own need the categories of all of Unicode, a second of each first run."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_CHARACTERS = (st.integers(0x20, 0x7E) | st.integers(0, 0xD7FF) | st.integers(0xE000, 0x10FFFF)).map(chr)


def texts(alphabet: str = "", *, min_size: int = 0, max_size: int | None = None) -> SearchStrategy[str]:
    """Return texts of these characters, or of all but surrogates."""
    characters = st.sampled_from(alphabet) if alphabet else _CHARACTERS
    return st.lists(characters, min_size=min_size, max_size=max_size).map("".join)
