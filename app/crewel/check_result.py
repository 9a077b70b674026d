"""The result of a check of the environment: `crewel doctor` and `crewel pipeline doctor` print it alike."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How the check ended."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found, and what to do about it."""

    check: str
    state: State
    found: str
    advice: str = ""
