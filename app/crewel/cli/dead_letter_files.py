"""Dead letters as files: one for each, in a directory for each receiver (xmlBlaster's DeadMessageDumper)."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from crewel.cli import output

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9@.-]+", re.ASCII)
_NS: Final = 1_000_000_000


def write_file(letter: dict[str, Any], directory: Path) -> bool:
    """Write the dead letter to its file; False if that is there already. The file holds it, and under `publish` the message
    as `POST /api/publish` takes it. Raises CrewelError."""
    import orjson

    from crewel.bayeux.numbers import fragment

    file = directory / _directory(letter["receiver"]) / f"{_received(letter['rcvTimestamp'])}_{letter['id']}.json"
    content = orjson.dumps(letter | {"publish": _publish(letter)}, fragment, option=orjson.OPT_INDENT_2) + b"\n"
    with output.file_errors(file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _write_new(file, content)


def _write_new(file: Path, content: bytes) -> bool:
    """Make the file with all of the content, or not at all: a later run skips what is there. False if it is."""
    if file.exists():
        return False
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with part.open("wb") as made:
            made.write(content)
            made.flush()
            os.fsync(made.fileno())
        _give_name(part, file)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def _give_name(part: Path, file: Path) -> None:
    """Raises FileExistsError if another run was quicker."""
    try:
        os.link(part, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        part.rename(file)


def _publish(letter: dict[str, Any]) -> dict[str, Any]:
    """The message, to be published again: to the one destination of this dead letter, and to no subscribers, if it was
    addressed."""
    qos = dict(letter["qos"])
    if to := letter.get("to"):
        named = [each for each in qos.get("destination", []) if each["to"] == to]
        qos["destination"] = named or [{"to": to}]
        if not letter["channel"].startswith("/service/"):
            qos["subscribable"] = False
    if letter["persistent"]:
        qos["persistent"] = True
    ext = letter["ext"] | ({"publish": qos} if qos else {})
    return {"channel": letter["channel"], "data": letter["data"], **({"ext": ext} if ext else {})}


def _directory(name: str) -> str:
    """`client_joe_1` of `/node/heron/client/joe/1`: no part of a name can lead anywhere else."""
    from crewel.qos.names import as_file_name, parse_name

    named = parse_name(name)
    if named is None:
        return "client_" + _UNSAFE.sub("_", name.rpartition("/client/")[2])
    # A subject may have the character that stands for the slash.
    return "_".join(as_file_name(part).replace("_", "%5F") for part in named.relative.split("/"))


def _received(timestamp: str) -> str:
    """When the message came, so that files lie in its order: 2026-11-20T16-05-50.123456789."""
    if not timestamp.isdecimal() or len(timestamp) > 20:
        return "unknown"
    seconds, rest = divmod(int(timestamp), _NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H-%M-%S}.{rest:09d}"
