"""Log lines about names that strangers choose: each name once, and not more of them than a page can read."""

from __future__ import annotations

import logging
from typing import Final

_LOGGED: Final = 100  # names that are logged; a stranger can invent them without end
_SHOWN: Final = 100  # characters of a foreign name in logs and answers


class RefusalLog:
    """Logs that requests were refused: `kind` names in the plural what is noted, such as `hosts`."""

    def __init__(self, log: logging.Logger, kind: str) -> None:
        self._log = log
        self._kind = kind
        self._logged: set[str] = set()

    def note(self, name: str, line: str) -> None:
        """Log the line, in which `%s` stands for the name, unless this name was logged before."""
        name = shown(name)
        if name in self._logged or len(self._logged) >= _LOGGED:
            return
        self._logged.add(name)
        self._log.warning(line, name)
        if len(self._logged) == _LOGGED:
            self._log.warning("refused requests for %d %s; further ones are not logged", _LOGGED, self._kind)


def shown(name: str) -> str:
    """A foreign name as it may stand in a log and in an answer: quoted, in ASCII, and cut."""
    return ascii(name[:_SHOWN])
