"""Where the files that browsers load lie on the disk.

`static` and `extensions` are inside the package, in a wheel as directories and
in a checkout as links (docs/decisions/0001), so one expression finds both.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def static_dir() -> Path:
    """Return the directory of the pages: index.html, style.css, chat/, vendor/."""
    return (_PACKAGE / "static").resolve()


def extensions_dir() -> Path:
    """Return the directory whose `*.js` files are the extensions' browser halves."""
    return (_PACKAGE / "extensions").resolve()
