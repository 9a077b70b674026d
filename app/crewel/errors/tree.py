"""The error tree: each class says what was not done, and whether it may be tried again."""

from __future__ import annotations

from math import ceil
from typing import Any, Final

from crewel.errors.bayeux_codes import Fault
from crewel.errors.codes import coded

_TOO_MANY_REQUESTS: Final = 429


class CrewelError(Exception):
    """The root of everything that Crewel raises on purpose."""

    exit_status = 1
    """Of the command that ends by it."""


class SettingsError(CrewelError):
    """A setting has an unknown name or an impossible value; the text says which and what was expected."""


class ServiceError(CrewelError):
    """A service module cannot be imported, holds no service, or declares something impossible."""


class PayloadError(CrewelError):
    """A whole request or frame is refused; the text says why, with `detail` also where, or what the limit is."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        super().__init__(f"{fault.text} ({detail})" if detail else fault.text)
        self.fault = fault


class Refused(CrewelError):
    """One message is refused; `error` is the text of its reply. Where it has a dotted code, `code` is that, and `message`
    is for people to read."""

    def __init__(self, error: str, code: str = "", message: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.code = code
        self.message = message


class IllegalArgument(Refused):
    """A field has a wrong type or value; `message` says what was expected of `field`."""

    def __init__(self, field: str, message: str) -> None:
        code = "user.illegalArgument"
        super().__init__(coded(code, field), code, f"{field[:128]}: {message}")
        self.field = field
        self.expected = message


class Limited(Refused):
    """A limit is reached. `limit` is the name of its setting, `wait_ms` the milliseconds after which to try again, and
    `message` says so in words. `code` tells a rate, which passes by itself, from a cap, below which something must end."""

    RATE = "resource.temporary.unavailable"
    CAP = "resource.exhaust"

    def __init__(self, limit: str, why: str, wait_s: float, code: str = RATE) -> None:
        self.limit = limit
        self.wait_ms = max(ceil(wait_s * 1000), 1)
        super().__init__(
            coded(code, limit, _TOO_MANY_REQUESTS), code, f"{limit}: {why}; try again in {self.wait_ms} ms"
        )


class RemoteCallError(CrewelError):
    """Raised by a remote call to answer `successful: false` with `data` (any JSON value)."""

    def __init__(self, data: Any) -> None:
        super().__init__(str(data))
        self.data = data


class NotReached(CrewelError):
    """A client that was asked for a sign of life gave none in time."""

    code = "communication.noConnection"


class StoreTaken(CrewelError):
    """Another server that lives has the store; the text says which, and what can be done."""

    def __init__(self, owner: str, advice: str = "") -> None:
        super().__init__(f"another server has the store: {owner}{advice}")
        self.owner = owner


class StoreLost(CrewelError):
    """Another server has taken the store from this one while it ran."""

    exit_status = 3


class StoreError(CrewelError):
    """The store did not do a step. `code` is the dotted code that a client reads."""

    code = "resource.unavailable"


class StoreUnavailable(StoreError):
    """The store cannot be asked. Nothing was done, so that the step may be tried again."""


class StoreUncertain(StoreUnavailable):
    """The store was asked and did not answer in time: the step was done, or it was not."""


class StoreFull(StoreError):
    """The store is at the limit of its memory or of its disk. It refused the step as a whole; nothing was done."""

    code = "resource.noMoreSpace"


class Fenced(StoreError):
    """The session, or this node itself, belongs to another token by now. Nothing was done."""


class Behind(StoreError):
    """The store has lost something that it had answered: it restarted without its last writes."""
