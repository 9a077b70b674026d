"""The forms of `storage.url`."""

import pytest

from crewel.errors import SettingsError
from crewel.settings import load
from crewel.settings.store_location import StoreKind, parse_store_address
from crewel.settings.table import shown


@pytest.mark.parametrize(
    "url", ["redis://joe:secret@host:6379/2?health_check_interval=3", "rediss://host", "unix:///run/valkey.sock"]
)
def test_one_server_is_reached_as_it_is_written(url: str) -> None:
    location = parse_store_address(url)
    assert (location.kind, location.url(), location.can_fail_over) == (StoreKind.SERVER, url, False)


def test_the_service_of_sentinels_has_hosts_a_name_and_two_logins() -> None:
    location = parse_store_address(
        "redis+sentinel://joe:secret@one,two:2,[::1]:3/main/4?sentinel_username=ann&sentinel_password=other&timeout=9"
    )
    assert location.kind is StoreKind.SENTINEL
    assert location.hosts == (("one", 26379), ("two", 2), ("::1", 3))
    assert location.service == "main"
    assert location.sentinel_login == ("ann", "other")
    assert location.url(("there", 5)) == "redis://joe:secret@there:5/4?timeout=9"
    assert location.url(("::1", 5)) == "redis://joe:secret@[::1]:5/4?timeout=9"
    assert location.can_fail_over
    assert not location.is_secure


def test_a_cluster_has_hosts_and_no_database() -> None:
    location = parse_store_address("rediss+cluster://:secret@one:1,two/0")
    assert (location.kind, location.hosts) == (StoreKind.CLUSTER, (("one", 1), ("two", 6379)))
    assert location.url(("there", 5)) == "rediss://:secret@there:5"
    assert location.is_secure


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "redis://",
        "redis://host:port",
        "unix:",
        "redis+other://host",
        "redis+sentinel://host",
        "redis+sentinel://host/main/x",
        "redis+sentinel://one,,two/main",
        "redis+sentinel://one:x/main",
        "redis+sentinel://one/main?sentinel_db=3",
        "redis+cluster://one/3",
        "redis+cluster://",
    ],
)
def test_anything_else_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(SettingsError, match=r"storage\.url.*expected an address such as redis://host"):
        load(overrides=[f"storage.url={url}"], environ={})


def test_no_password_is_shown() -> None:
    url = "redis+sentinel://joe:secret@one,two/main?sentinel_password=other"
    settings = load(overrides=[f"storage.url={url}", "storage.replicas=1"], environ={})
    text = shown(settings, "storage.url")
    assert "secret" not in text
    assert "other" not in text
    assert "one,two/main" in text
