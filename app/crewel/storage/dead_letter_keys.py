"""What the store keeps of dead letters: the fourth part of the table in `keys`."""

from typing import Final

from crewel.storage.keys import Key

_EVER: Final = "no limit"
_LETTERS: Final = "commit, end, redrive, bin, discard, restore, empty_bin, discard_waiting"
_INDEXES: Final = tuple(
    key
    for value in ("code", "receiver", "channel")
    for key in (
        Key(
            f"dead:{value}:<{value}>",
            "stream",
            "id is the dead id; nothing else",
            "as its dead letters",
            _LETTERS,
            "operators",
            f"The dead letters of one {value}.",
        ),
        Key(
            f"dead:{value}s",
            "sorted set",
            f"each {value}, in alphabetical order",
            "as its dead letters",
            _LETTERS,
            "operators",
            f"Every {value} that has dead letters, to find those with the same prefix.",
        ),
    )
)

DEAD_LETTER_KEYS: Final = (
    Key(
        "dead",
        "stream",
        "id is the dead id; `id` of the message; `received` nanoseconds; `receiver`; `code`; `reason`; `attempts`;"
        " `channel`; `body`, or `bh` its name in `dead:texts`; `sender`; `qos`, or `qh` its name there; `z` bytes that"
        " it counts in `dead:bytes`; and only if needed: `p` 1 if the message was stored; `r` dead id of its"
        " previous dead letter, `n` how often it became a dead letter again, `x` and `t` as in the log, `g` the code as"
        " the receiver gave it, if `code` is another; `h` earlier attempts, JSON; `e` 1 if an operator edited the"
        " message; `u` the dead id that it had before it was"
        " discarded and restored, and `a` the log id of the edited message that was sent in its place",
        "up to `delivery.dead_letters_max`, and `delivery.dead_letters_max_bytes`",
        _LETTERS,
        "operators, the pipeline",
        "The dead letters.",
    ),
    Key(
        "dead:texts",
        "hash",
        "SHA-1 of a text: the text",
        "as the dead letters that refer to it",
        _LETTERS,
        "operators, the pipeline",
        "The bodies and QoS of dead letters, from 200 bytes on, each stored once.",
    ),
    Key(
        "dead:uses",
        "hash",
        "SHA-1 of a text: number of dead letters that refer to it",
        "as its text",
        _LETTERS,
        _LETTERS,
        "Reference counts of these texts.",
    ),
    Key(
        "dead:bin",
        "hash",
        "dead id: the fields of the entry of `dead`, name and value in turn, each as `<length>:<text>`; also `b:who` the"
        " operator, `b:job` the job, `b:as` the log id of the edited message",
        "`delivery.discarded_kept_ms`; less if dead letters need the room",
        "bin, redrive, restore, empty_bin, discard, commit, end, discard_waiting",
        "operators",
        "Discarded dead letters. They refer to their texts as before.",
    ),
    Key(
        "dead:bin:at",
        "sorted set",
        "dead id, by when it was discarded: microseconds, no two the same",
        "as `dead:bin`",
        "bin, redrive, restore, empty_bin, discard, commit, end, discard_waiting",
        "operators",
        "The dead letters of `dead:bin` in the order in which they were discarded.",
    ),
    Key(
        "dead:bytes",
        "string",
        "a whole number",
        _EVER,
        _LETTERS,
        _LETTERS,
        "Approximate bytes of the dead letters with their texts.",
    ),
    *(
        Key(
            f"dead:held:{what}",
            "sorted set",
            f"account: {meaning}",
            "as the dead letters of the account",
            _LETTERS,
            f"operators; {_LETTERS}",
            "Accounts: subjects of receivers, and groups whose queues had the messages. Beyond a bound, the account that has"
            " most loses its oldest dead letters.",
        )
        for what, meaning in (
            ("entries", "number of its dead letters"),
            ("bytes", "approximate bytes of these, each text once"),
        )
    ),
    Key(
        "dead:of:<account>",
        "stream",
        "id is the dead id; nothing else",
        "as its dead letters",
        _LETTERS,
        "commit, end, discard_waiting",
        "The dead letters of one account, the oldest first.",
    ),
    Key(
        "dead:held:texts",
        "hash",
        "account and SHA-1 of a text: number of dead letters of the account that refer to it",
        "as these dead letters",
        _LETTERS,
        _LETTERS,
        "Lets a text count once for each account.",
    ),
    Key(
        "dead:charged",
        "string",
        "dead id",
        _EVER,
        "commit, end, discard_waiting",
        "commit, end, discard_waiting",
        "All dead letters up to this one are counted for accounts. Those that a server of 1.0 writes are counted later.",
    ),
    *_INDEXES,
    *(
        Key(f"dead:{name}", "string", "a whole number", _EVER, "commit, end, discard_waiting", "operators", meaning)
        for name, meaning in (
            (
                "dropped",
                "Number of dead letters dropped because of `delivery.dead_letters_max` or"
                " `delivery.dead_letters_max_bytes`.",
            ),
            ("returned", "Number of dead letters whose message had been redriven before."),
        )
    ),
)
