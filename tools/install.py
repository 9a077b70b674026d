"""Install packages where this Python is: install.py [--requirement LOCK] [--no-deps --editable DIRECTORY]

uv installs them, in a fifth of pip's time; its version and hashes are in tools/lock/requirements.lock, and it is kept in
.cache/uv for all environments of this checkout. Where uv cannot do what pip is configured to, or fails, pip installs.
Without arguments only uv itself is installed. No bytecode is written: Python does that when a module is imported first.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
HOME: Final = ROOT / ".cache/uv"
LOCK: Final = ROOT / "tools/lock/requirements.lock"
PIP: Final = [
    sys.executable,
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--root-user-action=ignore",
]
PIP_UV: Final = [*PIP, "--no-compile", "--target", str(HOME), "--require-hashes", "--requirement", str(LOCK)]
VARIABLES: Final = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "index-url": ("UV_DEFAULT_INDEX",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "trusted-host": ("UV_INSECURE_HOST",),
}
"""What uv reads instead of a setting of pip."""
NEEDLESS: Final = {
    *(
        "break-system-packages",
        "cache-dir",
        "compile",
        "config-file",
        "disable-pip-version-check",
        "exists-action",
        "log",
    ),
    *("no-cache-dir", "no-color", "no-compile", "no-input", "no-python-version-warning", "no-warn-script-location"),
    *("prefer-binary", "progress-bar", "quiet", "require-hashes", "require-virtualenv", "retries", "root-user-action"),
    *("use-deprecated", "use-feature", "user", "verbose"),
}
"""Settings of pip that change nothing about which files are installed from a lock, and where they come from."""


class Unsuited(Exception):
    """uv cannot do what pip is configured to; the text says why."""


def settings(listed: str) -> dict[str, str]:
    """Return the settings of `pip install` from what `pip config list` prints: the environment comes before files."""
    found = re.findall(r"^(global|install|:env:)\.([\w-]+)=(.+)$", listed, re.MULTILINE)
    order = ("global", "install", ":env:")
    return {
        name: ast.literal_eval(value) for section, name, value in sorted(found, key=lambda each: order.index(each[0]))
    }


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which uv does what pip does with these settings. Raises Unsuited for one that it lacks."""
    if unknown := sorted(settings.keys() - VARIABLES.keys() - NEEDLESS):
        raise Unsuited(f"pip is configured with {', '.join(unknown)}")
    made: dict[str, str] = {}
    for name, value in settings.items():
        values = value.split()
        if name == "find-links":  # pip only warns of a directory that is not there
            values = [",".join(each for each in values if "://" in each or Path(each).exists())]
        made |= dict.fromkeys(VARIABLES.get(name, ()), " ".join(values))
    return made


def environment() -> dict[str, str]:
    """Return this process's environment with what pip's configuration says for uv. Raises Unsuited."""
    pip_config = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    listed = subprocess.run(pip_config, check=True, stdout=subprocess.PIPE, text=True).stdout
    # As pip: the certificates of the system, and the best version of all indexes; a lock has the hashes.
    return {
        "UV_SYSTEM_CERTS": "1",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        **os.environ,
        **variables(settings(listed)),
    }


def uv() -> str:
    """Return the program, after it was installed if it is not there in this version. Raises Unsuited."""
    program, locked = HOME / "bin/uv", HOME / LOCK.name
    if not (program.exists() and locked.exists() and locked.read_bytes() == LOCK.read_bytes()):
        shutil.rmtree(HOME, ignore_errors=True)
        if subprocess.run(PIP_UV, check=False).returncode:
            raise Unsuited("pip could not install it")
        shutil.copyfile(LOCK, locked)
    return str(program)


def with_uv(arguments: Iterable[str]) -> None:
    """Install with uv. Raises Unsuited."""
    # It has bars of progress for a terminal, and else a line for each package.
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    command = [uv(), "pip", "install", "--python", sys.executable, *quiet, *arguments]
    if subprocess.run(command, check=False, env=environment()).returncode:
        raise Unsuited("it failed")


def main(*arguments: str) -> int:
    """Return the status with which the process ends."""
    hashes = ["--require-hashes"] if "--requirement" in arguments else []
    try:
        if arguments:
            with_uv([*hashes, *arguments])
        else:
            uv()
    except Unsuited as reason:
        if not arguments:
            return 1
        print(f"installing with pip, which takes longer than uv: {reason}", flush=True)
        return subprocess.run([*PIP, *hashes, *arguments], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
