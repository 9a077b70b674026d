"""The types of value that a setting can have, and the words for them.

A type turns what a person wrote (text from the environment or `--set`, or a
TOML value) into the typed value, or raises ValueError. `setting` declares one
setting of such a type.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from crewel.settings.store_location import parse_store_address

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


class Group(BaseModel):
    """One table of crewel.toml; unknown names in it are errors."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


@dataclass(frozen=True, slots=True)
class Expected:
    """The words of a type for what fits, in error messages."""

    text: str


def setting(
    default: object,
    why: str,
    *,
    unit: str = "",
    live: bool = False,
    secret: bool = False,
    expected: str = "",
    **bounds: Any,
) -> Any:
    """Declare one setting.

    `why` is for the person who wonders whether to change it. `live` says that the server looks at it at each use, so that it
    can change while running. `secret` says that it holds a password, which nothing prints. `unit` is needed where the name does
    not end with it. `expected` replaces the words made from type and bounds in error messages. `bounds` are pydantic's (ge, le,
    min_length, pattern).
    """
    extra: JsonDict = {"unit": unit, "live": live, "secret": secret, "expected": expected}
    return Field(default, description=why, json_schema_extra=extra, **bounds)


_ORIGIN = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://"
    r"(\*(\.[A-Za-z0-9_-]+)+\.[A-Za-z][A-Za-z0-9-]*|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?"
)


_MAX_NUMBER: Final = 2**53 - 1
"""What every program reads as it was written in JSON."""


def _in_json(given: int) -> int:
    # It is shown and audited as JSON, which cannot say it to every program.
    if abs(given) > _MAX_NUMBER:
        raise PydanticCustomError("too_large", "at most {most}", {"most": _MAX_NUMBER})
    return given


def _no_bool(given: object) -> object:
    # pydantic takes true for 1, which would make `timeout_ms = true` one millisecond.
    if isinstance(given, bool):
        raise ValueError("a Boolean is not a number")  # noqa: TRY004 - pydantic collects ValueErrors
    return given


def _empty_is_unset(given: object) -> object:
    return None if given == "" else given


def _split(given: object) -> object:
    if isinstance(given, str):
        text = given.strip()
        given = json.loads(text) if text.startswith("[") else text.split(",") if text else []
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
        raise ValueError("not a list of strings")
    return tuple(item.strip() for item in given)


def _each(check: Callable[[str], object]) -> AfterValidator:
    def checked(items: tuple[str, ...]) -> tuple[str, ...]:
        for item in items:
            check(item)
        return items

    return AfterValidator(checked)


def _matching(pattern: str) -> Callable[[str], str]:
    def check(item: str) -> str:
        if not re.fullmatch(pattern, item):
            raise ValueError(f"{item!r} is not valid")
        return item

    return check


def _one_of(*names: str) -> Callable[[str], str]:
    return _matching("|".join(re.escape(name) for name in names))


def _in_header(given: str) -> str:
    # A header cannot have it: the client that sends the header would fail each time.
    if _CONTROLS.search(given) or given != given.strip():
        raise ValueError("not a text that fits into a header")
    return given


def _address(given: str, *schemes: str) -> SplitResult:
    if _CONTROLS.search(given):  # which urlsplit removes
        raise ValueError("not an address: it has control characters")
    parts = urlsplit(given)
    _ = parts.port  # raises ValueError when it is not a port
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"not an address of {' or '.join(schemes)}")
    return parts


def _web_address(given: str) -> str:
    parts = _address(given, "http", "https")
    if parts.query or parts.fragment:
        raise ValueError("not the address of a server")
    return given.rstrip("/")


def _hook_address(given: str) -> str:
    # With a query if need be: many services put a key there.
    if _address(given, "http", "https").fragment:
        raise ValueError("not an address that can be posted to")
    return given


def _origin(given: str) -> str:
    """An origin as browsers send it: of a page, of an app by its own scheme, `null` of a page without one, or `*` for all. The
    first label of a name may be `*`, but for a name of two labels: the other one would be a whole top-level domain."""
    if given in ("*", "null", "file://"):
        return given
    _ = urlsplit(given).port  # raises ValueError when it is not a port
    if not _ORIGIN.fullmatch(given):
        raise ValueError("not an origin")
    return given


def _store_address(given: str) -> str:
    parse_store_address(given)
    return given


def _unless_unset(check: Callable[[str], str]) -> AfterValidator:
    return AfterValidator(lambda given: None if given is None else check(given))


def _path_as_text(given: object) -> object:
    return os.fspath(given) if isinstance(given, os.PathLike) else given


Number = Annotated[int, BeforeValidator(_no_bool), AfterValidator(_in_json)]
OptionalText = Annotated[str | None, BeforeValidator(_empty_is_unset)]
IN_HEADER = "a text without control characters and without spaces at its ends"
"""What fits into a header."""
BearerToken = Annotated[str | None, BeforeValidator(_empty_is_unset), _unless_unset(_in_header)]
FileName = Annotated[str, BeforeValidator(_path_as_text)]
OptionalFileName = Annotated[
    str | None, BeforeValidator(_empty_is_unset), BeforeValidator(_path_as_text), Expected("a file name")
]
WebAddress = Annotated[str | None, BeforeValidator(_empty_is_unset), _unless_unset(_web_address)]
HookAddress = Annotated[str | None, BeforeValidator(_empty_is_unset), _unless_unset(_hook_address)]
StoreAddress = Annotated[str | None, BeforeValidator(_empty_is_unset), _unless_unset(_store_address)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split)]
Origins = Annotated[Texts, _each(_origin)]
Hosts = Annotated[Texts, _each(_matching(r"\*|\[[0-9A-Fa-f:.]+\]|[^/\s:@\[\]*]+"))]
Networks = Annotated[Texts, _each(ip_network), Expected("IP addresses or networks such as 10.0.0.0/8")]
GroupNames = Annotated[Texts, _each(_matching(r"[A-Za-z0-9_.@-]{1,64}")), Expected("names of groups")]
ClaimName = Annotated[str, Field(pattern=r"^\S{1,128}$"), Expected("the name of a claim")]
Channels = Annotated[Texts, _each(_matching(r"/\S+"))]
Transports = Annotated[Texts, _each(_one_of("websocket", "long-polling", "callback-polling"))]
Algorithms = Annotated[Texts, _each(_matching(r"(HS|RS|ES|PS)(256|384|512)|ES256K|EdDSA"))]
Extensions = Annotated[Texts, _each(_matching(r"[A-Za-z_]\w*|[A-Za-z_][\w.]*:[A-Za-z_]\w*"))]
