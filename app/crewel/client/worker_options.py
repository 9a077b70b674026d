"""What a worker may ask for, and the session that it has for itself."""

from __future__ import annotations

from os import PathLike
from typing import Final

from crewel.client.arguments import check_count, check_names, check_text
from crewel.client.config import Options
from crewel.client.resume import ResumeStore, default_file
from crewel.client.retry import BackoffRule, check_backoff
from crewel.client.states import OnState
from crewel.client.subscription import SubscribeOptions
from crewel.qos.names import parse_name

PREFETCH: Final = 100
"""How many messages a worker fetches ahead, unless it says otherwise."""
RETRIES: Final = BackoffRule(initial=1.0, factor=2.0, maximum=60.0)
"""How long after a failure a message is retried, where the worker asks for more than one attempt."""


class WorkerOptions(SubscribeOptions, total=False):
    """The options of a worker, beside those of its subscription (docs/reference/client.md)."""

    resume_file: str | PathLike[str] | None
    """Where the secret of its session is kept; in the user's state directory unless you say otherwise."""
    resume_store: ResumeStore | None
    """What keeps the secret, in place of a file."""
    prefetch: int
    """How many messages are fetched ahead, at most; 100 unless you say otherwise."""
    attempts: int
    """How often a message that raises an exception is tried in all; once unless you say otherwise."""
    backoff: BackoffRule
    """The pauses between these attempts; 1 second doubling to 60 unless you say otherwise."""
    ack_wait: float | None
    """Within how many seconds a message has to be acknowledged or rejected; without limit unless you say otherwise."""
    max_open: int | None
    """How many messages may be open at the worker; without limit unless you say otherwise."""
    on_state: OnState | None
    """What is called with each transition of its session."""


def check_worker(name: str, options: WorkerOptions) -> None:
    """Raises ValueError or TypeError, which names the argument that does not fit."""
    check_text("name", name)
    check_backoff("backoff", options.get("backoff", RETRIES))
    parsed = parse_name(name)
    if parsed is None or not parsed.is_chosen:
        raise ValueError(f"name must be a subject and a number, such as worker/1, not {name!r}")
    check_count("prefetch", options.get("prefetch", PREFETCH))
    check_count("attempts", options.get("attempts", 1))
    check_names("consume", options, (*WorkerOptions.__annotations__, "name", "data"))


def session_options(url: str, name: str, options: WorkerOptions) -> Options:
    """The options of the session of a worker with this name."""
    file, store = options.get("resume_file"), options.get("resume_store")
    if file is None and store is None:
        file = default_file(url, name)
    return {
        "name": name,
        "persistent": True,
        "leave": True,
        "update": True,
        "ack_wait": options.get("ack_wait"),
        "max_open": options.get("max_open"),
        "resume_file": file,
        "resume_store": store,
        "session": {"burst": {"maxEntries": options.get("prefetch", PREFETCH)}},
    }
