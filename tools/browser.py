"""The browser of the tools that take pictures."""

import shutil
import sys
from collections.abc import Sequence


def installed(names: Sequence[str]) -> str:
    """Return the path of the first of these programs that is there; if none is, end with a line that says so."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        sys.exit(f"missing: Chromium, none of {', '.join(names)} is there; `make test-browser` installs it")
    return path
