"""Where the secret of a session is kept, and the times of the client."""

import asyncio
import math
from pathlib import Path

import pytest

from crewel.client import Client, ClientError, Message, ResumeCallbacks, ResumeFile
from crewel.client.config import Config
from crewel.client.publish_options import publication
from crewel.client.resume import default_file
from crewel.client.time_units import milliseconds

URL = "https://crewel.example:8443/cometd"


async def test_a_secret_is_replaced_as_a_whole_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("not ours")
    path = tmp_path / "deep" / "joe.resume"
    store = ResumeFile(path)
    assert await store.load() is None
    await store.save("one")
    path.unlink()
    path.symlink_to(other)
    await store.save("two")
    assert (await store.load(), other.read_text(), path.is_symlink()) == ("two", "not ours", False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["joe.resume"]


async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="cannot be read"):
        await ResumeFile(tmp_path).load()
    (tmp_path / "file").write_text("")
    with pytest.raises(ClientError, match="cannot be written"):
        await ResumeFile(tmp_path / "file" / "x").save("secret")


async def test_functions_may_keep_the_secret() -> None:
    kept: list[str] = []

    async def load() -> str | None:
        return kept[-1] if kept else None

    async def save(secret: str) -> None:
        kept.append(secret)

    for store in (ResumeCallbacks(load, save), ResumeCallbacks(lambda: kept[-1] if kept else "", kept.append)):
        kept.clear()
        assert await store.load() is None
        await store.save("s")
        assert await store.load() == "s"


async def test_functions_that_fail_are_reported() -> None:
    def fail(*_: object) -> str:
        raise OSError("vault is sealed")

    broken = ResumeCallbacks(fail, fail)
    with pytest.raises(ClientError, match=r"loads the resume secret failed: .*vault is sealed"):
        await broken.load()
    with pytest.raises(ClientError, match="saves the resume secret failed"):
        await broken.save("s")
    with pytest.raises(ClientError, match="returned bytes, not a string"):
        await ResumeCallbacks(lambda: b"s", print).load()  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1)])
async def test_functions_that_end_their_task_or_the_program_fail(error: BaseException) -> None:
    async def fail(*_: object) -> str:
        raise error

    broken = ResumeCallbacks(fail, fail)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="loads the resume secret failed"):
        await broken.load()
    with pytest.raises(ClientError, match="saves the resume secret failed"):
        await broken.save("s")


def test_a_worker_has_a_file_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    name = "crewel.example-8443-worker%2F1.resume"
    assert default_file(URL, "worker/1") == tmp_path / "crewel" / "resume" / name
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/worker:/var/lib/other")
    assert default_file(URL, "worker/1") == Path("/var/lib/worker") / name
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_file(URL, "worker/1").is_relative_to(tmp_path / ".local" / "state")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # a user of a container, which is a bare number
    with pytest.raises(ClientError, match="worker/1 has no place for the secret of its session, because"):
        default_file(URL, "worker/1")


def test_one_place_is_enough() -> None:
    with pytest.raises(ValueError, match="resume_file and resume_store exclude each other"):
        Config(URL, resume_file="a", resume_store=ResumeFile(Path("b")))


@pytest.mark.parametrize(("given", "wire"), [(0, 0), (1.5, 1500), (-1, -1), (math.inf, -1)])
def test_times_are_seconds(given: float, wire: int) -> None:
    assert milliseconds("delay", given) == wire


@pytest.mark.parametrize("given", [-2, math.nan, "5", None, True])
def test_a_wrong_time_is_named(given: object) -> None:
    with pytest.raises(ValueError, match="delay is a number of seconds, or -1 for no limit"):
        milliseconds("delay", given)


def test_a_time_in_milliseconds_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Client\(\) has no argument 'ack_wait_ms': did you mean 'ack_wait'"):
        Client("http://127.0.0.1:1/cometd", ack_wait_ms=1500)
    with pytest.raises(TypeError, match=r"publish\(\) has no argument 'life_time_ms': did you mean 'life_time'"):
        publication("/a", 1, life_time_ms=1500)


def test_what_is_not_binary_has_no_bytes() -> None:
    for fields in ({"ext": {"binary": {}}}, {"ext": {"binary": {}}, "data": {"data": 5}}):
        assert Message("/a", fields.get("data"), dict(fields)).content is None
    damaged = {"data": "\u00e9\u00e9", "meta": {"contentType": 5}}
    message = Message("/a", damaged, {"ext": {"binary": {}}, "data": damaged})
    assert (message.content, message.content_type) == (None, None)
