"""The logs on stderr: for people on a terminal, one JSON object a line otherwise.

Modules log with `logging.getLogger(__name__)` and put facts into `extra`; both
forms show them. What is secret is not logged in the first place: nothing here
filters.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:  # slow to import, and commands only want `escaped`
    from crewel.settings import Settings

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the order in which a terminal shows others."""
_IN_JSON = {number: f"\\u{number:04x}" for number in (*range(127, 160), *_BIDI)}
_ESCAPED = _IN_JSON | {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160))} | {10: r"\n", 13: r"\r"}
_ESCAPED_IN_LINES = {number: text for number, text in _ESCAPED.items() if number != ord("\n")}


def escaped(text: str, *, is_one_line: bool = True) -> str:
    """The text for a terminal, without control characters, with which a text of a client could forge a line or rule the
    terminal. Line ends stay unless it `is_one_line`."""
    return text.translate(_ESCAPED if is_one_line else _ESCAPED_IN_LINES)


def escaped_json(text: str) -> str:
    """This JSON for a terminal, with the same content. JSON itself escapes the control characters of ASCII but one."""
    return text.translate(_IN_JSON)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, the extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`; values that JSON does not know appear as text."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(fields, default=str).decode()


class HumanFormatter(logging.Formatter):
    """Formats a record for a person: time, level, message, the extras as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`, with the traceback below it if there is one."""
        clock = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        facts = "".join(f"  {name}={value}" for name, value in _extras(record).items())
        line = escaped(f"{clock} {record.levelname.lower():<7} {record.getMessage()}{facts}")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(settings: "Settings") -> None:
    """Send the process's logs to stderr as `log.format` and `log.level` say."""
    chosen = settings.log.format
    human = chosen == "human" or (chosen == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log.level.upper())


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}
