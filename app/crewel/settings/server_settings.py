"""Every setting once: name, type, unit, default, bounds, and why it is there.

To add one, add it to its group with the code that obeys it; the command line, the
error messages and docs/reference/settings.md follow. Times are whole milliseconds, as
Bayeux has them on the wire. The groups about what survives a restart are in
`storage`, those about permissions and limits in `access`, and the rules
for topics in `topic_rules`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

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

_AGAIN_MS: Final = 1000


class Http(Group):
    """The listening socket and everything below Bayeux."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on; :: is all IPv6 and IPv4 addresses. An address other than loopback needs security.policy=jwt or"
        " security.allow_open.",
        min_length=1,
        expected="a host name or an IP address",
    )
    port: Number = setting(8080, "Port to listen on; 0 lets the system pick one.", ge=0, le=65535)
    allowed_origins: Origins = setting(
        (),
        "Additional origins whose web pages may use the server. In https://*.example.org, * stands for one label. Apps have"
        " origins such as capacitor://localhost; null is any page without an origin of its own. *: all.",
        expected="origins such as https://example.org, https://*.example.org, capacitor://localhost or null, or *",
    )
    allowed_hosts: Hosts = setting(
        (),
        "Host names that a server on loopback accepts, in addition to localhost and public_url. *: any.",
        expected="host names such as chat.example.org, without a port, or *",
    )
    public_url: WebAddress = setting(
        None,
        "Address of the server behind a proxy, as browsers see it. The server accepts it as its own origin, in addition"
        " to loopback.",
        expected="an http or https address such as https://chat.example.org",
    )
    trusted_proxies: Networks = setting(
        (), "Proxies whose X-Forwarded-* headers the server trusts. A port behind an address is ignored."
    )
    tls_cert: OptionalFileName = setting(
        None, "Certificate chain (PEM). Set it with tls_key to serve https. Renewed files are used within a minute."
    )
    tls_key: OptionalFileName = setting(None, "Private key (PEM) of tls_cert.")
    header_timeout_ms: Number = setting(
        10000, "Time for a client to send its headers; then the server closes the connection.", ge=1
    )
    body_timeout_ms: Number = setting(
        30000, "Time for a client to send its body; then the server closes the connection.", live=True, ge=1
    )
    keepalive_ms: Number = setting(
        75000,
        "Time after which the server closes an idle connection, or one whose client does not read its response.",
        ge=1,
    )
    max_header_bytes: Number = setting(16384, "Maximum size of the headers of a request.", ge=1024)
    fast_lane: bool = setting(
        True,
        "Handle Bayeux POST requests directly on the connection. false: through aiohttp, with the same result but"
        " slower.",
    )
    demos: bool = setting(True, "Serve the pages at / and /chat/.")


class Bayeux(Group):
    """The protocol: timing, limits, and what CometD calls its server options."""

    path: str = setting(
        "/cometd",
        "Path at which the server handles Bayeux requests, and below it.",
        pattern=r"^(/[A-Za-z0-9._~-]+)+$",
        expected="a path that starts with / and does not end with one",
    )
    timeout_ms: Number = setting(
        30000, "How long the server holds a /meta/connect when it has nothing to deliver.", live=True, ge=0
    )
    interval_ms: Number = setting(0, "Pause between connects that the server advises clients to make.", live=True, ge=0)
    max_interval_ms: Number = setting(
        10000,
        "Time without a connect, in addition to the interval, after which a session without a name ends, and one with a name"
        " is not alive any more: it ends after the timeout of its login.",
        live=True,
        ge=0,
    )
    sweep_ms: Number = setting(
        1000, "Interval at which the server removes expired sessions and channels.", live=True, ge=10
    )
    max_processing_ms: Number = setting(
        -1,
        "Time after which a session ends if its client sends nothing while its connect is held. -1: never.",
        live=True,
        ge=-1,
    )
    max_lazy_ms: Number = setting(5000, "Maximum delay of a message on a lazy channel.", live=True, ge=0)
    lazy_channels: Channels = setting(
        (),
        "Lazy channels: their messages do not end a held connect at once.",
        expected="channels, the last segment may be * or **",
    )
    max_message_bytes: Number = setting(65536, "Maximum size of a request body or WebSocket message.", ge=1)
    max_batch_messages: Number = setting(
        1000, "Maximum number of messages in one request.", unit="messages", live=True, ge=1
    )
    max_depth: Number = setting(
        64, "Maximum nesting depth of JSON in a request.", unit="levels", live=True, ge=1, le=200
    )
    max_response_bytes: Number = setting(
        524288,
        "Maximum size of the messages in one response. Further messages wait for the next connect.",
        live=True,
        ge=1,
    )
    max_queue_messages: Number = setting(
        10000,
        "Maximum number of messages in the queue of a session that is not stored, and the largest that a login may ask for."
        " Beyond it, the server drops the oldest, or ends the session if it uses ack. Stored sessions:"
        " delivery.queue_max_entries.",
        unit="messages",
        live=True,
        ge=1,
    )
    max_queue_bytes: Number = setting(
        10485760,
        "Maximum bytes in the queue of a session that is not stored. Beyond it, the server does the same as for"
        " max_queue_messages.",
        ge=1,
    )
    max_sessions_per_browser: Number = setting(
        1,
        "Maximum number of connects held at once for one browser cookie. Further sessions poll. -1: no limit; 0: none"
        " held.",
        ge=-1,
    )
    multi_session_interval_ms: Number = setting(
        2000,
        "Polling interval of sessions beyond max_sessions_per_browser. 0 or less: the server refuses them.",
        live=True,
        ge=-1,
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
    broadcast_to_publisher: bool = setting(
        True, "Deliver a message to its publisher too, if the publisher is subscribed.", live=True
    )
    meta_connect_deliver_only: bool = setting(
        False, "Deliver messages only in replies to /meta/connect, for all sessions.", live=True
    )
    allow_message_delivery_during_handshake: bool = setting(False, "Allow messages in the handshake reply.", live=True)
    handshake_reconnect: bool = setting(
        False,
        "Report max_interval_ms to clients, so that they handshake again when it has passed.",
        live=True,
    )
    duplicate_connect_status: Number = setting(
        500,
        "HTTP status of the response to a held connect that a newer one replaces. Browsers repeat a request after a"
        " 408.",
        live=True,
        ge=400,
        le=599,
    )
    callback_parameter: str = setting(
        "jsonp",
        "Query parameter that names the function in callback-polling.",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        expected="a name of letters, digits and _",
    )
    callback_parameter_max_length: Number = setting(
        64, "Maximum length of the function name in callback-polling.", unit="characters", ge=1, le=1024
    )
    cookie_name: str = setting(
        "BAYEUX_BROWSER",
        "Cookie that binds a session to its browser. A session of a page of another site is bound to the page's origin.",
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
        expected="a cookie name",
    )
    cookie_domain: OptionalText = setting(None, "Domain attribute of the browser cookie.", expected="a domain")
    cookie_path: str = setting(
        "/",
        "Path attribute of the browser cookie.",
        pattern=r"^/[^\s;,]*$",
        expected="a path that starts with /",
    )
    cookie_max_age: Number = setting(
        -1, "Lifetime of the browser cookie; -1: until the browser closes.", unit="s", ge=-1
    )
    cookie_secure: bool = setting(
        False, "Mark the browser cookie Secure in responses over https; always on if http.tls_cert is set."
    )
    cookie_http_only: bool = setting(True, "Hide the browser cookie from scripts.")
    cookie_same_site: Annotated[
        Literal["lax", "strict", "none"] | None,
        BeforeValidator(lambda given: given.lower() or None if isinstance(given, str) else given),
    ] = setting(
        None,
        "SameSite attribute of the browser cookie. Not set: the browser decides. none counts over https only, adds Secure,"
        " and binds pages of other sites to the cookie.",
        expected="lax, strict or none",
    )
    cookie_partitioned: bool = setting(
        False,
        "Set the attributes Partitioned and Secure of the browser cookie over https, for pages in frames of other sites.",
    )


class WebSocket(Group):
    """What only the WebSocket transport looks at."""

    idle_timeout_ms: Number = setting(
        300000,
        "Time without a message after which the server closes a WebSocket; pings, pongs and fragments are no messages."
        " Keep it above bayeux.timeout_ms.",
        ge=1,
    )
    handshake_timeout_ms: Number = setting(
        30000,
        "Time after which the server closes a WebSocket with code 1008 if it belongs to no session: its client sent no"
        " handshake, and no message of a session.",
        ge=1,
    )
    protocol: OptionalText = setting(
        None,
        "Sub-protocol that clients must offer. Not set: none.",
        expected="a sub-protocol name",
    )
    require_handshake_per_connection: bool = setting(
        False, "Require another handshake on each new WebSocket.", live=True
    )
    compression: bool = setting(True, "Offer permessage-deflate.")


class Activity(Group):
    """The `activity` extension."""

    max_inactivity_ms: Number = setting(
        300000, "Time without user activity after which the server disconnects the session.", live=True, ge=1
    )


class Log(Group):
    """What goes to stderr."""

    format: Literal["auto", "json", "human"] = setting("auto", "auto: human on a terminal, JSON otherwise.")
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Lowest level of the messages that the server logs."
    )


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
    def _groups_fit(self) -> "Settings":
        self.require_fit()
        return self

    def require_fit(self) -> None:
        """Raise ValueError if values of several groups do not fit together."""
        if bool(self.http.tls_cert) != bool(self.http.tls_key):
            raise ValueError("http.tls_cert and http.tls_key are needed together")
        if self.cluster.enabled and not (self.storage.enabled and self.storage.url):
            raise ValueError("cluster.enabled needs storage.url: the servers share that store")
        location = self.storage.location
        if self.cluster.tails == "replica" and (not self.storage.replicas or location is None or location.is_socket):
            raise ValueError(
                "cluster.tails=replica needs storage.replicas of 1 or more, and a storage.url with a host: a node delivers "
                "what a replica has only when the primary knows that enough replicas have it"
            )

    @property
    def again_ms(self) -> int:
        """Milliseconds after which a client comes again whose request has waited for a node in vain."""
        return min(_AGAIN_MS, self.bayeux.max_interval_ms // 4)

    @property
    def hold_ms(self) -> int:
        """Milliseconds that a request may wait for a node: `cluster.hold_ms`, or less, so that a session does not end while its
        client waits, is refused, and comes again."""
        return min(self.cluster.hold_ms, self.bayeux.max_interval_ms - 2 * self.again_ms)

    @property
    def why_shorter_hold(self) -> str | None:
        """Why requests wait for a shorter time than `cluster.hold_ms`; None if they do not, or there is one process only."""
        is_alone = not self.cluster.enabled and self.cluster.workers == 1
        if is_alone or self.hold_ms == self.cluster.hold_ms:
            return None
        return (
            f"a session would end while its client waits: cluster.hold_ms is {self.cluster.hold_ms}, and"
            f" bayeux.max_interval_ms {self.bayeux.max_interval_ms}; requests wait for {self.hold_ms} ms"
        )

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
