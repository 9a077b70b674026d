"""What the store knows of the servers that share it or had it, and of its copies: the second part of the table in `keys`."""

from typing import Final

from crewel.storage.keys import Key

_EVER: Final = "no limit"

NODE_KEYS: Final = (
    Key(
        "epoch",
        "string",
        "a whole number",
        _EVER,
        "boot",
        "a server that the store no longer knows",
        "Counter of server starts: a server that finds a later one than its own has been superseded.",
    ),
    Key(
        "nodes",
        "set",
        "tokens",
        _EVER,
        "boot, adopt, release",
        "adopt, inherit, members, trim",
        "The servers that own data here.",
    ),
    Key(
        "tags",
        "hash",
        "tag: token of the node that has the sessions whose `clientId` ends with it",
        _EVER,
        "boot, inherit, untag",
        "members",
        "The node that a request belongs to. The tag of a former node stays while a session has it.",
    ),
    Key(
        "secret",
        "string",
        "64 hexadecimal characters",
        _EVER,
        "boot",
        "each node",
        "Shared secret: nodes prove to each other that they know it.",
    ),
    Key(
        "node:<token>",
        "hash",
        "`name`; `cursor` log id up to which it has consumed the log; `low` log id up to which none of its sessions"
        " needs anything; `seq` number of its last commit; `opening`, `opened` a commit in several parts, and their"
        " number; `since` microseconds of its start; `epoch` the number of its start; `scan` the position among its"
        " sessions of the server that adopts them; for a node also `tag`, `link`"
        " (its address for other nodes), `process` (as in `lease:<token>`) and `groups`, how often `groups:<token>` has"
        " changed",
        "until all its sessions are adopted",
        "boot, open, commit, adopt, inherit, note_groups",
        "all, to detect that this server has been superseded; trim, members; nodes",
        "One run of a server. The token is random, new at each start.",
    ),
    Key(
        "left:<token>",
        "hash",
        "as `node:<token>`; `heir` token of the node that takes over its sessions",
        "until the heir has committed them",
        "inherit, release, adopt",
        "inherit, adopt, members, trim",
        "The record of a dead node, under another name so that the store refuses every step of that node.",
    ),
    Key(
        "lease:<token>",
        "string",
        "the server's process, as JSON: `node`, `pid`, `host`, `machine`, `started`, `has_directory`",
        "`cluster.lease_ms`, renewed while the server lives",
        "boot, renew, inherit",
        "boot, inherit, members",
        "Lease of the server: while it exists, no other server takes over the sessions.",
    ),
    Key(
        "own:<token>",
        "set",
        "session names",
        "as `node:<token>`",
        "login, adopt, inherit, end",
        "adopt, inherit, members",
        "The sessions of that server.",
    ),
    Key(
        "unstored:<token>",
        "sorted set",
        "`<session> ptp` or, for a session that accepts no addressed messages, `<session> -`; all scores are 0",
        "as `node:<token>`",
        "claim, unclaim, inherit, adopt",
        "claim, login; logins, addressed messages",
        "The named sessions of that node that are not stored.",
    ),
    Key(
        "groups:<token>",
        "set",
        "queues of groups",
        "as `node:<token>`, or `left:<token>`",
        "note_groups, release, adopt",
        "nodes",
        "The groups that have members at that node.",
    ),
    Key(
        "kept",
        "set",
        "queues of groups",
        "while a rule keeps the group",
        "keep_groups",
        "keep_groups",
        "The groups that keep their messages without members.",
    ),
    Key(
        "copied:<connection>",
        "string",
        "a whole number",
        "an hour after the last one",
        "mark",
        "each server, when the store has changed",
        "The newest mark that a connection has written before a `WAIT`, which waits only for writes of its own connection. A"
        " promoted replica that has it lacks nothing of what was written before.",
    ),
)
"""The keys about servers."""
