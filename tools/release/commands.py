"""Runs the commands of a release, and tells what failed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

_LONGEST_S = 900
_LAST_LINES = 40


class ReleaseError(Exception):
    """A part cannot be built, or does not work; the text is for people."""


def run(*words: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Return what a command prints. Raises ReleaseError with the end of its output if it fails, or if it is not there."""
    command = " ".join(map(str, words))
    try:
        told = subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"`{command}` did not end within {_LONGEST_S} s") from None
    except OSError as error:
        raise ReleaseError(f"`{command}` cannot be run: {error.strerror}") from None
    if told.returncode:
        lines = (told.stdout + told.stderr).splitlines()[-_LAST_LINES:]
        raise ReleaseError("\n".join([f"`{command}` exits with {told.returncode}:", *lines]))
    return told.stdout


def missing(commands: Iterable[str]) -> list[str]:
    """Return those that this machine lacks; of `docker/buildah` either is enough. A docker without its engine is
    named as such."""
    lacking = {each for each in commands if not any(map(works, each.split("/")))}
    return sorted(
        f"{each} (docker is here, its engine does not run)" if _has_docker(each) else each for each in lacking
    )


def works(command: str) -> bool:
    """Whether a command is here; and for docker, whether its engine runs."""
    if shutil.which(command) is None:
        return False
    return command != "docker" or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _has_docker(alternatives: str) -> bool:
    return "docker" in alternatives.split("/") and shutil.which("docker") is not None
