"""What a look at an environment finds: `crewel doctor` and `crewel pipeline doctor` report it alike."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What is to be thought of a finding."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    state: State
    found: str
    advice: str = ""
