"""What the store keeps of operators and their work: the third part of the table in `keys`."""

from typing import Final

from crewel.storage.keys import Key

OPERATOR_KEYS: Final = (
    Key(
        "audit",
        "stream",
        "`d` JSON: `at` milliseconds since 1970, `node`, `who`, `role`, `what`, `about`, `count`, `reason`, `outcome`,"
        " `errorCode`, `details`",
        "the newest `admin.audit_max_entries`",
        "audit",
        "operators",
        "What operators did, and what they were refused.",
    ),
    Key(
        "jobs",
        "sorted set",
        "ids of jobs; the score is milliseconds since 1970 of the beginning",
        "the newest 1000",
        "begin_job",
        "operators",
        "All jobs that are kept.",
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
        "`d` what was asked for, by whom, why and when, as JSON; `state`; `owner` token of the server that runs it, `node` its"
        " name; `after` the place behind which it continues; `done`, `undone` numbers; `errors` the first failures, as JSON;"
        " `error` why it has failed or waits; `changed`, `ended` milliseconds since 1970; `changedBy` an operator",
        "as in `jobs`",
        "begin_job, claim_jobs, save_job, steer_job, redrive, discard",
        "operators; each start",
        "One job: a redrive, discard or drain of many.",
    ),
)
