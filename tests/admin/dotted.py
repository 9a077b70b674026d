"""A server whose store has what 1.0 has stored under the names `/a/../b`, `..` and `../1`, beside what such paths lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from tests.admin.desk import SETS, Desk, Receiver
from tests.server_process import Server
from tests.store_process import shared_store

DOTTED = "/a/../b"
VICTIM = "/b"
KEPT = "/a/../kept"
"""A session is subscribed to it as long as the server runs."""
_STAND_IN = b"zz"  # as long as the dots: some values say how long others are
HISTORY = {"publish": {"history": {"maxEntries": 3}, "destroyDelay": -1}}


@contextmanager
def serving_dotted_names(directory: Path) -> Iterator[Server]:
    """Serve a store that an older version has written. Each name and its victim have a history or a queue of their own."""
    settings = ["--port=0", *(f"--set={text}" for text in SETS), "--set=limits.failed_tokens_burst=100000"]
    server = Server(settings, directory)
    for name in ("zz/1", "amy/1"):
        receiver = Receiver(server).be(name, persistent=True)
        receiver.subscribe("/queued")
    receiver.subscribe(KEPT.replace("..", "zz"))
    speaker = Receiver(server).be()
    for channel in ("/a/zz/b", VICTIM, "/admin", "/topics"):
        speaker.publish(channel, channel.replace("zz", ".."), ext=HISTORY)
    speaker.publish("/queued", "queued", ext={"publish": {"persistent": True}})
    to_eve = {"persistent": True, "destination": [{"to": "client/eve", "forceQueuing": True}], "subscribable": False}
    speaker.publish("/direct", "for eve", ext={"publish": to_eve})
    server.end_well()
    prefix = next(text for text in server.store_sets if text.startswith("storage.prefix=")).partition("=")[2]
    with Redis.from_url(shared_store().url) as store:
        for key in list(store.scan_iter(prefix + "{crewel}:*")):
            _rewrite(store, key)
    server = Server([*settings, *(f"--set={text}" for text in server.store_sets)], directory)
    yield server
    server.end_well()


def _dotted(text: bytes) -> bytes:
    for before, after in ((b"/", b"/"), (b"/", b'"'), (b"/", b" "), (b"subject:", b"")):
        text = text.replace(before + _STAND_IN + after, before + b".." + after)
    return text[: -len(_STAND_IN)] + b".." if text.endswith(b"/" + _STAND_IN) else text


def _rewrite(store: Any, key: bytes) -> None:
    """Let the key have the dots where it has their stand-in."""
    writers: dict[bytes, Callable[[], object]] = {
        b"string": lambda: store.set(key, _dotted(store.get(key)), keepttl=True),
        b"set": lambda: [
            (store.srem(key, each), store.sadd(key, _dotted(each))) for each in store.smembers(key) if b"zz" in each
        ],
        b"hash": lambda: [
            (store.hdel(key, name), store.hset(key, _dotted(name), _dotted(value)))
            for name, value in store.hgetall(key).items()
        ],
        b"zset": lambda: [
            (store.zrem(key, each), store.zadd(key, {_dotted(each): score}))
            for each, score in store.zrange(key, 0, -1, withscores=True)
        ],
        b"stream": lambda: _rewrite_stream(store, key),
        b"none": lambda: None,
    }
    writers[store.type(key)]()
    if _dotted(key) != key and store.exists(key):
        store.rename(key, _dotted(key))


def _rewrite_stream(store: Any, key: bytes) -> None:
    entries = store.xrange(key)
    if any(b"zz" in value for _, fields in entries for value in fields.values()):
        store.delete(key)
        for place, fields in entries:
            store.xadd(key, {name: _dotted(value) for name, value in fields.items()}, id=place)


def standing(desk: Desk) -> dict[str, Any]:
    """What each test compares: all topics, sessions and subjects, with how much they hold; but for those of an open page."""
    topics = {each["channel"]: each["history"]["entries"] for each in desk.get("/topics")["topics"]}
    sessions = {each["name"]: each["waiting"] for each in desk.get("/sessions")["sessions"]}
    subjects = {each["name"]: each["queued"] for each in desk.get("/subjects")["subjects"]}
    found = {**topics, **sessions, **subjects}
    return {name: held for name, held in found.items() if not name.startswith(("/__sys__", "client/anonymous"))}
