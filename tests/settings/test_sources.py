"""Where values come from, which source wins, and what a person is told who wrote something impossible."""

import errno
import os
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from crewel.settings import Settings, SettingsError, load
from crewel.settings.sources import change
from crewel.settings.storage import Storage
from crewel.settings.table import as_text, declared, shown, value_of

NONE: dict[str, str] = {}


def toml(directory: Path, text: str) -> Path:
    """Return a settings file that holds `text`."""
    file = directory / "some.toml"
    file.write_text(text)
    return file


def test_without_sources_every_value_is_its_default() -> None:
    settings = load(environ=NONE)
    for name, setting in declared().items():
        # The name of this machine is the default of one.
        assert value_of(settings, name) == (socket.gethostname() if name == "node.name" else setting.default)
        assert settings.source(name) == "default"


def test_settings_made_without_load_hold_the_defaults_whatever_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP", '{"port": 1}')
    monkeypatch.setenv("CREWEL_HTTP__PORT", "1")
    assert Settings().http.port == 8080


def test_the_environment_wins_over_toml_and_set_over_both(tmp_path: Path) -> None:
    file = toml(tmp_path, "[bayeux]\ntimeout_ms = 1\ninterval_ms = 1\nmax_interval_ms = 1\n")
    environ = {"CREWEL_BAYEUX__INTERVAL_MS": "2", "CREWEL_BAYEUX__MAX_INTERVAL_MS": "2"}
    settings = load(file, ["bayeux.max_interval_ms=3"], environ)
    found = {
        name: (value_of(settings, name), settings.source(name))
        for name in ("bayeux.timeout_ms", "bayeux.interval_ms", "bayeux.max_interval_ms", "bayeux.sweep_ms")
    }
    assert found == {
        "bayeux.timeout_ms": (1, "toml"),
        "bayeux.interval_ms": (2, "env"),
        "bayeux.max_interval_ms": (3, "--set"),
        "bayeux.sweep_ms": (1000, "default"),
    }


def test_the_last_of_several_overrides_wins() -> None:
    assert load(overrides=["http.port=1", "http.port=2"], environ=NONE).http.port == 2


def test_crewel_toml_of_the_working_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crewel.toml").write_text("[http]\nport = 7\n")
    monkeypatch.chdir(tmp_path)
    assert load(environ=NONE).http.port == 7


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("long-polling", ("long-polling",)),
        ("long-polling, websocket", ("long-polling", "websocket")),
        ('["long-polling", "websocket"]', ("long-polling", "websocket")),
    ],
)
def test_a_list_is_comma_separated_or_json(given: str, expected: tuple[str, ...]) -> None:
    assert load(overrides=[f"bayeux.transports={given}"], environ=NONE).bayeux.transports == expected


def test_toml_writes_a_list_as_a_list_or_as_text(tmp_path: Path) -> None:
    listed = toml(tmp_path, '[bayeux]\nlazy_channels = ["/a/*", "/b"]\nextensions = "ack,timesync"\n')
    settings = load(listed, environ=NONE)
    assert settings.bayeux.lazy_channels == ("/a/*", "/b")
    assert settings.bayeux.extensions == ("ack", "timesync")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("bayeux.extensions=", ()),
        ("bayeux.extensions=ack,my_app.filters:Shout", ("ack", "my_app.filters:Shout")),
        (
            "http.allowed_origins=https://a.example,http://b.example:8080",
            ("https://a.example", "http://b.example:8080"),
        ),
        ("http.allowed_origins=*", ("*",)),
        (
            "http.allowed_origins=https://*.example.org:8443,capacitor://localhost,ionic://localhost,file://,null",
            ("https://*.example.org:8443", "capacitor://localhost", "ionic://localhost", "file://", "null"),
        ),
        ("http.public_url=https://a.example/", "https://a.example"),
        ("http.public_url=", None),
        ("http.trusted_proxies=10.0.0.0/8,::1", ("10.0.0.0/8", "::1")),
        ("bayeux.trust_client_session=yes", True),
        ("bayeux.cookie_same_site=Lax", "lax"),
        ("bayeux.cookie_same_site=none", "none"),
        ("bayeux.cookie_same_site=", None),
        ("bayeux.max_processing_ms=-1", -1),
        ("websocket.protocol=bayeux", "bayeux"),
    ],
)
def test_text_becomes_the_typed_value(override: str, expected: object) -> None:
    name = override.partition("=")[0]
    assert value_of(load(overrides=[override], environ=NONE), name) == expected


@pytest.mark.parametrize(
    "address", ["redis://a:1/0", "rediss://joe:secret@a", "redis://:secret@a", "unix:///run/a.sock"]
)
def test_a_store_has_one_of_three_kinds_of_address(address: str) -> None:
    assert load(overrides=[f"storage.url={address}"], environ=NONE).storage.url == address


@pytest.mark.parametrize("address", ["a:6379", "http://a", "redis://", "unix://", "redis://a:port", "redis://a:99999"])
def test_nothing_else_is_the_address_of_a_store(address: str) -> None:
    with pytest.raises(SettingsError, match=r"storage\.url: .* expected an address such as redis://host:6379/0"):
        load(overrides=[f"storage.url={address}"], environ=NONE)


@pytest.mark.parametrize("prefix", ["größe:", "a\x7f:", "a b:", "{a}:", "a" * 65])
def test_a_prefix_that_no_name_of_a_connection_may_have_is_refused(prefix: str) -> None:
    with pytest.raises(SettingsError, match=r"storage\.prefix: .* expected at most 64 ASCII characters"):
        load(overrides=[f"storage.prefix={prefix}"], environ=NONE)


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("redis://joe:secret@a:1/0", "redis://joe:***@a:1/0"),
        ("redis://:secret@a", "redis://:***@a"),
        ("redis://joe:sec@ret@a:1/0", "redis://joe:***@a:1/0"),
        ("redis://:s@e@cret@a", "redis://:***@a"),
        ("unix:///run/a.sock?password=secret", "unix:///run/a.sock?password=***"),
        ("redis://a", "redis://a"),
        ("", None),
    ],
)
def test_a_password_is_not_shown(address: str, seen: str | None) -> None:
    assert shown(load(overrides=[f"storage.url={address}"], environ=NONE), "storage.url") == seen


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("https://joe:secret@example.org/services/secret?key=secret", "https://example.org/***"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/***"),
        ("", None),
    ],
)
def test_of_a_webhook_no_more_than_the_server_is_shown(address: str, seen: str | None) -> None:
    name = "delivery.dead_letter_webhook"
    settings = load(overrides=[f"{name}={address}", f"{name}_token=secret"], environ=NONE)
    assert value_of(settings, name) == (address or None)
    assert shown(settings, name) == seen
    assert shown(settings, f"{name}_token") == "***"


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("https://joe:secret@a.example:8443/keys?key=secret#secret", "https://***@a.example:8443/keys?***"),
        ("http://secret@a/keys", "http://***@a/keys"),
        ("https://a/realms/b@c/keys", "https://a/realms/b@c/keys"),
        ("keys/a@b?.json", "keys/a@b?.json"),
        ("", None),
    ],
)
def test_credentials_in_the_address_of_keys_are_not_shown(address: str, seen: str | None) -> None:
    assert shown(load(overrides=[f"security.jwt_keys={address}"], environ=NONE), "security.jwt_keys") == seen


@pytest.mark.parametrize("address", ["ftp://secret", "secret", "http://", "http://secret/#a", "http://secret:port/"])
def test_an_address_that_is_refused_is_not_repeated_if_it_may_hold_a_secret(address: str) -> None:
    with pytest.raises(SettingsError, match=r"dead_letter_webhook: .* expected an http or https address") as refused:
        load(overrides=[f"delivery.dead_letter_webhook={address}"], environ=NONE)
    assert "//secret" not in str(refused.value)


@pytest.mark.parametrize("value", ["sesame, sesame, sesame\n", "sesame\x00sesame, sesame", "\tsesame, sesame, sesame"])
@pytest.mark.parametrize(
    "name",
    ["admin.token", "admin.notice_webhook_token", "delivery.dead_letter_webhook_token", "delivery.dead_letter_webhook"],
)
def test_what_no_header_can_have_is_refused_at_the_start(name: str, value: str) -> None:
    """Each notification failed with a traceback, and the server was ready all the same."""
    given = f"https://a/?key={value}" if name.endswith("webhook") else value
    with pytest.raises(SettingsError, match=name) as refused:
        load(overrides=[f"{name}={given}"], environ=NONE)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("name", list(declared()))
def test_every_value_can_be_written_back_as_text(name: str) -> None:
    """What `crewel settings` shows is what `--set` takes."""
    default = value_of(Settings(), name)
    assert value_of(load(overrides=[f"{name}={as_text(default)}"], environ=NONE), name) == default


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("bayeux.timeot_ms=1", "--set bayeux.timeot_ms: unknown setting; did you mean bayeux.timeout_ms?"),
        ("timeout_ms=1", "--set timeout_ms: unknown setting; did you mean bayeux.timeout_ms?"),
        ("zzz=1", "--set zzz: unknown setting"),
        ("timout_ms=1", "--set timout_ms: unknown setting; did you mean bayeux.timeout_ms?"),
        (
            "server.max_interval_ms=1",
            "--set server.max_interval_ms: unknown setting; did you mean bayeux.max_interval_ms?",
        ),
        ("bayeux.timeout_ms", "--set bayeux.timeout_ms: expected NAME=VALUE"),
        (
            "bayeux.timeout_ms=soon",
            "--set bayeux.timeout_ms: 'soon' is not possible: expected a whole number of milliseconds, 0 or more",
        ),
        (
            "limits.max_channels=99999999999999999999",
            "expected a whole number, 0 or more, at most 9007199254740991",
        ),
        ("bayeux.timeout_ms=-1", "--set bayeux.timeout_ms: '-1' is not possible: expected"),
        ("http.port=65536", "--set http.port: '65536' is not possible: expected a whole number from 0 to 65535"),
        ("bayeux.max_depth=201", "expected a whole number of levels from 1 to 200"),
        ("bayeux.path=cometd", "--set bayeux.path: 'cometd' is not possible: expected a path that starts with /"),
        ("bayeux.path=/", "--set bayeux.path: '/' is not possible"),
        ("bayeux.duplicate_connect_status=399", "expected a whole number from 400 to 599"),
        ("bayeux.transports=pigeon", "--set bayeux.transports: 'pigeon' is not possible: expected websocket"),
        ("bayeux.transports=", "--set bayeux.transports:"),
        ("bayeux.transports=[long-polling", "--set bayeux.transports: '[long-polling' is not possible"),
        ("bayeux.transports=[1]", "--set bayeux.transports: '[1]' is not possible"),
        ("bayeux.extensions=a b", "expected names of extensions, or package.module:Class"),
        ("bayeux.lazy_channels=a", "expected channels"),
        ("http.allowed_origins=example.org", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://*", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://*.org", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://a.*.example.org", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://a*.example.org", "expected origins such as https://example.org"),
        ("http.allowed_origins=*.example.org", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://joe@example.org", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://münchen.example", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://example.org:port", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://example.org/", "expected origins such as https://example.org"),
        ("http.allowed_origins=https://*.0.0.1", "expected origins such as https://example.org"),
        ("http.allowed_origins=Null", "expected origins such as https://example.org"),
        ("http.public_url=example.org", "expected an http or https address"),
        ("http.public_url=http://example.org:port", "expected an http or https address"),
        ("http.trusted_proxies=10.0.0.1/8", "expected IP addresses or networks"),
        ("http.host=", "expected a host name or an IP address"),
        ("http.demos=perhaps", "--set http.demos: 'perhaps' is not possible: expected true or false"),
        ("log.level=loud", "expected one of debug, info, warning, error"),
        ("security.policy=closed", "expected one of open"),
        ("http.tls_cert=chain.pem", "http.tls_cert and http.tls_key are needed together"),
    ],
)
def test_what_is_impossible_is_told_in_one_line(override: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(overrides=[override], environ=NONE)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[bayeux]\ntimeout = 1\n", "bayeux.timeout: unknown setting; did you mean bayeux.timeout_ms?"),
        ("[bayeaux]\ntimeout_ms = 1\n", "bayeaux.timeout_ms: unknown setting; did you mean bayeux.timeout_ms?"),
        ("timeout_ms = 1\n", "timeout_ms: unknown setting; did you mean bayeux.timeout_ms?"),
        ("[bayeux]\ntimeout_ms = true\n", "bayeux.timeout_ms: True is not possible: expected a whole number"),
        ("[bayeux]\nlazy_channels = 1\n", "bayeux.lazy_channels: 1 is not possible"),
        ("[http.port]\n", "http.port: {} is not possible: expected a whole number from 0 to 65535"),
        ("[bayeux\n", "is not TOML"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(toml(tmp_path, text), environ=NONE)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml", environ=NONE)


def test_a_directory_that_may_not_be_entered_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has a settings file is not known."""

    def refused(path: Path, **_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as closed:
        closed.setattr(Path, "stat", refused)
        closed.setattr(Path, "read_text", refused)
        with pytest.raises(SettingsError) as caught:
            load(environ=NONE)
    advice = "run this in the server's directory, as its user"
    assert str(caught.value) == f"crewel.toml: cannot be read: Permission denied: {advice}"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("CREWEL_BAYEUX__TIMEOT_MS", "did you mean CREWEL_BAYEUX__TIMEOUT_MS?"),
        ("CREWEL_BAYEUX_TIMEOUT_MS", "did you mean CREWEL_BAYEUX__TIMEOUT_MS?"),
        ("CREWEL_HTTP__PORT", "CREWEL_HTTP__PORT: 'x' is not possible: expected a whole number from 0 to 65535"),
    ],
)
def test_a_bad_variable_is_named(variable: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(environ={variable: "x"})
    assert str(caught.value).startswith(f"{variable}: ")
    assert message in str(caught.value)


def test_variables_that_an_orchestrator_makes_are_left_alone() -> None:
    """Kubernetes sets these for a service that is called crewel."""
    assert load(environ={"CREWEL_PORT": "tcp://10.0.0.1:80", "CREWEL_SERVICE_HOST": "10.0.0.1"}).http.port == 8080


def test_the_variables_of_the_pipeline_are_not_those_of_the_server() -> None:
    """One file often has the environment of both."""
    environ = {f"CREWEL_PIPELINE__{name}": "x" for name in ("DIR", "MASTER", "KEEP_DAYS", "DEBUG")}
    assert load("/dev/null", environ=environ).sources == {}


def test_a_change_that_a_start_would_refuse_is_refused() -> None:
    """Values of several groups have to fit together."""
    given = ["cluster.tails=replica", "storage.url=redis://a", "storage.durability=managed", "storage.replicas=1"]
    settings = load("/dev/null", given, NONE)
    with pytest.raises(SettingsError, match=r"cluster\.tails=replica needs storage\.replicas of 1 or more"):
        change(settings, {"delivery.commit_ms": 100, "storage.replicas": 0})
    assert (settings.storage.replicas, settings.delivery.commit_ms) == (1, 200)
    assert change(settings, {"storage.replicas": 2}) == {"storage.replicas": (1, 2)}


def test_a_value_that_changes_while_running_is_checked_too() -> None:
    settings = Settings()
    settings.bayeux.timeout_ms = 1000
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        settings.bayeux.timeout_ms = -5
    assert settings.bayeux.timeout_ms == 1000


def test_a_program_may_give_files_and_directories_as_paths(tmp_path: Path) -> None:
    storage = Storage(data_dir=tmp_path, server_binary=tmp_path / "valkey-server")
    assert (storage.data_dir, storage.server_binary) == (str(tmp_path), str(tmp_path / "valkey-server"))
    settings = Settings()
    settings.storage.data_dir = tmp_path / "other"  # type: ignore[assignment]
    assert settings.storage.data_dir == str(tmp_path / "other")
