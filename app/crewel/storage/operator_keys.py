"""What the store keeps of operators and their work: the third part of the table in `keys`."""

from typing import Final

from crewel.storage.keys import Key

_EVER: Final = "no limit"

OPERATOR_KEYS: Final = (
    Key(
        "audit",
        "stream",
        "`d` JSON: `at` milliseconds since 1970, `node`, `who`, `role`, `what`, `about`, `count`, `reason`, `outcome`,"
        " `errorCode`, `details`",
        "up to `admin.audit_max_entries`",
        "audit",
        "operators",
        "The actions of operators, including refused ones.",
    ),
    Key(
        "audit:held:entries",
        "sorted set",
        "operator: number of its entries",
        "as its entries",
        "audit",
        "operators; audit",
        "Beyond the bound, the operator with the most entries loses the oldest.",
    ),
    Key(
        "audit:of:<operator>",
        "stream",
        "id is that in `audit`; nothing else",
        "as its entries",
        "audit",
        "audit",
        "The entries of one operator, the oldest first.",
    ),
    Key(
        "audit:charged",
        "string",
        "id in `audit`",
        _EVER,
        "audit",
        "audit",
        "All entries up to this one are counted for operators. Those that a server of 1.0 writes are counted later.",
    ),
    Key(
        "alerts",
        "hash",
        "session name: `since`, `raised`, both milliseconds since 1970, `held_ms`, `code`, `who`, `reason`, as JSON",
        "until the session is activated, or has ended",
        "the pipeline",
        "operators",
        "Receivers that have been on hold for too long.",
    ),
    Key(
        "server:events",
        "stream",
        "`d` JSON: `at`, `until` milliseconds since 1970, `node`, `what`, and what belongs to it",
        "a day, and the newest 2000",
        "server_event",
        "operators",
        "What happened to the servers: starts, stops, outages, take-overs, refused logins.",
    ),
    Key(
        "backed-up",
        "string",
        "seconds since 1970",
        _EVER,
        "crewel backup",
        "operators",
        "The instant of the last backup, for the metrics.",
    ),
    Key(
        "jobs",
        "sorted set",
        "ids of jobs; the score is their start, milliseconds since 1970",
        "the newest 1000",
        "begin_job",
        "operators",
        "All jobs that the store keeps.",
    ),
    Key(
        "jobs:open",
        "set",
        "ids of jobs",
        "until they have ended",
        "begin_job, save_job, steer_job",
        "claim_jobs",
        "The jobs that run or are paused.",
    ),
    Key(
        "job:<id>",
        "hash",
        "`d` the request, its operator, reason and time, as JSON; `state`; `owner` token of the server that runs it,"
        " `node` its name; `after` the place after which it continues; `done`, `undone` numbers; `errors` the first"
        " failures, as JSON; `error` why it failed or waits; `changed`, `ended` milliseconds since 1970; `changedBy` an"
        " operator",
        "as in `jobs`",
        "begin_job, claim_jobs, save_job, steer_job, redrive, discard",
        "operators; each start",
        "One job: a redrive, discard or drain of many.",
    ),
    Key(
        "spent:<id>",
        "string",
        "empty",
        "until what it marks has expired, and an hour",
        "spend",
        "each server, whenever the code or the cookie is shown, and for live feeds",
        "A code that has signed in a page, or a sign-in of a page that has signed out.",
    ),
    Key(
        "restored",
        "string",
        "milliseconds since 1970",
        "no limit",
        "`crewel restore`",
        "as `spent:<id>`",
        "When a backup was restored last. What was issued before counts as spent: a backup does not have what was signed out"
        " after it.",
    ),
)
