"""What can go wrong, in one place: the error tree (`tree`), the texts of Bayeux replies (`bayeux_codes`), what a dotted code
is (`dotted`), and the list of them (`known`)."""

from crewel.errors.bayeux_codes import (
    DENIED_BY_NOT_GRANTING,
    DENIED_BY_POLICY,
    BayeuxCode,
    Denied,
    Fault,
    denied,
)
from crewel.errors.dotted import Category, ErrorCode, class_of, coded, status_of
from crewel.errors.known import CODES, KNOWN
from crewel.errors.tree import (
    Behind,
    CrewelError,
    Fenced,
    IllegalArgument,
    NotReached,
    PayloadError,
    Refused,
    RemoteCallError,
    ServiceError,
    SettingsError,
    StoreError,
    StoreFull,
    StoreLost,
    StoreTaken,
    StoreUnavailable,
    StoreUncertain,
)

__all__ = [
    "CODES",
    "DENIED_BY_NOT_GRANTING",
    "DENIED_BY_POLICY",
    "KNOWN",
    "BayeuxCode",
    "Behind",
    "Category",
    "CrewelError",
    "Denied",
    "ErrorCode",
    "Fault",
    "Fenced",
    "IllegalArgument",
    "NotReached",
    "PayloadError",
    "Refused",
    "RemoteCallError",
    "ServiceError",
    "SettingsError",
    "StoreError",
    "StoreFull",
    "StoreLost",
    "StoreTaken",
    "StoreUnavailable",
    "StoreUncertain",
    "class_of",
    "coded",
    "denied",
    "status_of",
]
