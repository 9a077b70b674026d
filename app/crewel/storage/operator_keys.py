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
)
