"""Where the files that browsers load lie on the disk.

`static` and `extensions` are inside the package, in a wheel as directories and
in a checkout as links (docs/decisions/0001), so one expression finds both.
"""

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent

STATIC: Final = (_PACKAGE / "static").resolve()
"""The directory of the pages: index.html, style.css, chat/, vendor/."""

EXTENSIONS: Final = {file.stem: file for file in (_PACKAGE / "extensions").resolve().glob("*.js")}
"""The extensions' browser halves by name: `update` is update.js."""
