"""Every setting once: name, type, unit, default, bounds, and why it is there.

To add one, add it to its group with the code that obeys it; the command line, the
error messages and docs/reference/settings.md follow. Times are whole milliseconds, as
Bayeux has them on the wire. The groups about what survives a restart are in
`storage`, those about permissions and limits in `access`, and the rules
for topics in `topic_rules`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from crewel.settings.access import Admin, Limits, Security
from crewel.settings.storage import Cluster, Delivery, Events, Node, Ptp, Storage
from crewel.settings.topic_rules import TopicRule
from crewel.settings.types import (
    Channels,
    Extensions,
    Group,
    Hosts,
    Networks,
    Number,
    OptionalFileName,
    OptionalText,
    Origins,
    Transports,
    WebAddress,
    setting,
)


class Http(Group):
    """The listening socket and everything below Bayeux."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on. Other addresses than loopback need security.policy=jwt, or security.allow_open.",
        min_length=1,
        expected="a host name or an IP address",
    )
    port: Number = setting(8080, "Port to listen on; 0 lets the system pick one.", ge=0, le=65535)
    allowed_origins: Origins = setting(
        (),
        "Further origins whose web pages may use the server; * means all.",
        expected="origins such as https://example.org, or *",
    )
    allowed_hosts: Hosts = setting(
        (),
        "Further host names that a server on loopback accepts, in addition to localhost and public_url; * means any.",
        expected="host names such as chat.example.org, without a port, or *",
    )
    public_url: WebAddress = setting(
        None,
        "Address of the server behind a proxy, as browsers see it: its own origin, beside those of loopback.",
        expected="an http or https address such as https://chat.example.org",
    )
    trusted_proxies: Networks = setting((), "Peers whose X-Forwarded-* headers are trusted.")
    tls_cert: OptionalFileName = setting(None, "Certificate chain (PEM). With tls_key: serve https.")
    tls_key: OptionalFileName = setting(None, "Private key (PEM) of tls_cert.")
    header_timeout_ms: Number = setting(
        10000, "Time for a peer to send its headers; then the connection is closed.", ge=1
    )
    body_timeout_ms: Number = setting(
        30000, "Time for a peer to send its body; then the connection is closed.", live=True, ge=1
    )
    keepalive_ms: Number = setting(
        75000,
        "Time until an idle connection is closed, or one whose peer does not read its response.",
        ge=1,
    )
    max_header_bytes: Number = setting(16384, "Largest request headers that are accepted.", ge=1024)
    fast_lane: bool = setting(
        True, "Handle Bayeux POSTs at the connection. false: by aiohttp, with the same result but slower."
    )
    demos: bool = setting(True, "Serve the pages at / and /chat/.")


class Bayeux(Group):
    """The protocol: timing, limits, and what CometD calls its server options."""

    path: str = setting(
        "/cometd",
        "Path where Bayeux is served, with everything below it.",
        pattern=r"^(/[A-Za-z0-9._~-]+)+$",
        expected="a path that starts with / and does not end with one",
    )
    timeout_ms: Number = setting(
        30000, "Time that a /meta/connect is held when there is nothing to deliver.", live=True, ge=0
    )
    interval_ms: Number = setting(0, "Pause between connects that the server advises to clients.", live=True, ge=0)
    max_interval_ms: Number = setting(
        10000, "Time without a connect, after its interval, until a session ends.", live=True, ge=0
    )
    sweep_ms: Number = setting(1000, "Interval at which expired sessions and channels are removed.", live=True, ge=10)
    max_processing_ms: Number = setting(
        -1,
        "Time until a session ends whose client sends nothing while its connect is held; -1: never.",
        live=True,
        ge=-1,
    )
    max_lazy_ms: Number = setting(5000, "Longest delay of a message on a lazy channel.", live=True, ge=0)
    lazy_channels: Channels = setting(
        (),
        "Messages on these channels do not wake a held connect at once.",
        expected="channels, the last segment may be * or **",
    )
    max_message_bytes: Number = setting(65536, "Largest request body or WebSocket message.", ge=1)
    max_batch_messages: Number = setting(
        1000, "Maximum number of messages in one request.", unit="messages", live=True, ge=1
    )
    max_depth: Number = setting(64, "Deepest nesting of JSON that is accepted.", unit="levels", live=True, ge=1, le=200)
    max_response_bytes: Number = setting(
        524288, "Messages up to this size go into one response; the rest waits for the next connect.", live=True, ge=1
    )
    max_queue_messages: Number = setting(
        10000,
        "Maximum number of messages in the queue of a session. Beyond it, the oldest are dropped, or a session with ack ends.",
        unit="messages",
        live=True,
        ge=1,
    )
    max_queue_bytes: Number = setting(
        10485760,
        "Maximum bytes in the queue of one session. Beyond it, the same happens as with too many messages.",
        ge=1,
    )
    max_sessions_per_browser: Number = setting(
        1,
        "Maximum number of connects held at a time for one browser cookie; others poll. -1: no limit, 0: none held.",
        ge=-1,
    )
    multi_session_interval_ms: Number = setting(
        2000, "Polling interval of the sessions above that limit; 0 or less refuses them.", live=True, ge=-1
    )
    trust_client_session: bool = setting(
        False,
        "Find the session by its clientId alone when the browser cookie is missing.",
        live=True,
    )
    transports: Transports = setting(
        ("websocket", "long-polling"),
        "Transports to offer, in this order. callback-polling is off unless listed.",
        min_length=1,
        expected="websocket, long-polling, callback-polling",
    )
    extensions: Extensions = setting(
        ("ack", "update", "replay", "timesync"),
        "Extensions to load, in this order.",
        expected="names of extensions, or package.module:Class",
    )
    broadcast_to_publisher: bool = setting(True, "A publisher that is subscribed receives its own messages.", live=True)
    meta_connect_deliver_only: bool = setting(
        False, "Deliver to all sessions with replies to /meta/connect only.", live=True
    )
    allow_message_delivery_during_handshake: bool = setting(False, "Allow messages in the handshake reply.", live=True)
    handshake_reconnect: bool = setting(
        False,
        "Report max_interval_ms to clients, so that they handshake again when it has passed.",
        live=True,
    )
    duplicate_connect_status: Number = setting(
        500,
        "HTTP status of a held connect that a newer one replaces. Browsers repeat a 408.",
        live=True,
        ge=400,
        le=599,
    )
    callback_parameter: str = setting(
        "jsonp",
        "Query parameter with the name of the function in callback-polling.",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        expected="a name of letters, digits and _",
    )
    callback_parameter_max_length: Number = setting(
        64, "Longest function name in callback-polling.", unit="characters", ge=1, le=1024
    )
    cookie_name: str = setting(
        "BAYEUX_BROWSER",
        "Cookie that binds a session to its browser.",
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
        expected="a cookie name",
    )
    cookie_domain: OptionalText = setting(None, "Domain attribute of that cookie.", expected="a domain")
    cookie_path: str = setting(
        "/",
        "Path attribute of that cookie.",
        pattern=r"^/[^\s;,]*$",
        expected="a path that starts with /",
    )
    cookie_max_age: Number = setting(-1, "Lifetime of that cookie; -1: until the browser closes.", unit="s", ge=-1)
    cookie_secure: bool = setting(
        False, "Mark that cookie Secure in responses over https; always on if http.tls_cert is set."
    )
    cookie_http_only: bool = setting(True, "Hide that cookie from scripts.")
    cookie_same_site: Annotated[
        Literal["lax", "strict", "none"] | None,
        BeforeValidator(lambda given: given.lower() or None if isinstance(given, str) else given),
    ] = setting(
        None,
        "SameSite attribute of that cookie. Not set: the browser decides.",
        expected="lax, strict or none",
    )
    cookie_partitioned: bool = setting(False, "Partitioned attribute of that cookie, for pages framed by other sites.")


class WebSocket(Group):
    """What only the WebSocket transport looks at."""

    idle_timeout_ms: Number = setting(
        300000, "Time until a socket without a message is closed; keep it above bayeux.timeout_ms.", ge=1
    )
    protocol: OptionalText = setting(
        None,
        "Sub-protocol that clients must offer. Not set: none.",
        expected="a sub-protocol name",
    )
    require_handshake_per_connection: bool = setting(
        False, "A session must handshake again on each new socket.", live=True
    )
    compression: bool = setting(True, "Offer permessage-deflate.")


class Activity(Group):
    """The `activity` extension."""

    max_inactivity_ms: Number = setting(
        300000, "Time without activity of the user until the session is disconnected.", live=True, ge=1
    )


class Log(Group):
    """What goes to stderr."""

    format: Literal["auto", "json", "human"] = setting("auto", "auto: human on a terminal, JSON otherwise.")
    level: Literal["debug", "info", "warning", "error"] = setting("info", "Lowest level of messages that are logged.")


class Telemetry(Group):
    """OpenTelemetry, which the extra `otel` brings."""

    traces: bool = setting(
        False,
        "Record a span for each publish, delivery, acknowledgement, dead letter and redrive, and carry the W3C trace context in"
        " ext.traceparent.",
    )


class Settings(BaseSettings):
    """All settings, by group: `settings.bayeux.timeout_ms`.

    `Settings()` holds the defaults; `crewel.settings.load` reads the sources.
    """

    model_config = SettingsConfigDict(extra="forbid")

    http: Http = Field(default_factory=Http)
    bayeux: Bayeux = Field(default_factory=Bayeux)
    websocket: WebSocket = Field(default_factory=WebSocket)
    activity: Activity = Field(default_factory=Activity)
    limits: Limits = Field(default_factory=Limits)
    security: Security = Field(default_factory=Security)
    admin: Admin = Field(default_factory=Admin)
    storage: Storage = Field(default_factory=Storage)
    delivery: Delivery = Field(default_factory=Delivery)
    ptp: Ptp = Field(default_factory=Ptp)
    events: Events = Field(default_factory=Events)
    node: Node = Field(default_factory=Node)
    cluster: Cluster = Field(default_factory=Cluster)
    log: Log = Field(default_factory=Log)
    telemetry: Telemetry = Field(default_factory=Telemetry)
    topics: dict[str, TopicRule] = Field(default_factory=dict)

    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_named: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keep `Settings()` from reading the environment: only `load` does."""
        # pydantic would also read variables that belong to other programs.
        return (init_settings,)

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "Settings":
        if bool(self.http.tls_cert) != bool(self.http.tls_key):
            raise ValueError("http.tls_cert and http.tls_key are needed together")
        return self

    @model_validator(mode="after")
    def _nodes_have_a_common_store(self) -> "Settings":
        if self.cluster.enabled and not (self.storage.enabled and self.storage.url):
            raise ValueError("cluster.enabled needs storage.url: the servers share that store")
        return self

    def remember_sources(self, sources: Mapping[str, str]) -> None:
        """Keep where values came from, by dotted name; all others are defaults."""
        self._sources = sources

    @property
    def sources(self) -> Mapping[str, str]:
        """Where values came from, by dotted name, as far as they are no defaults."""
        return self._sources

    def source(self, name: str) -> str:
        """Return where the value of the setting `name` comes from: default, toml, env or --set."""
        return self._sources.get(name, "default")
