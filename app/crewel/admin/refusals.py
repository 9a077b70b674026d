"""How a failure is told to an operator: a dotted code and words, the same on every face."""

from __future__ import annotations

from crewel.errors import CrewelError, PayloadError


def told(error: CrewelError) -> dict[str, str]:
    """`{"errorCode": …, "message": …}`."""
    usual = "user.illegalArgument" if isinstance(error, PayloadError) else "internal.unknown"
    return {
        "errorCode": getattr(error, "code", "") or usual,
        "message": getattr(error, "message", "") or str(error),
    }
