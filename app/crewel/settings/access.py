"""The settings about permissions, and how much one client, one address, one subject and all together may ask for."""

from typing import Literal

from pydantic import model_validator

from crewel.settings.types import (
    IN_HEADER,
    Algorithms,
    BearerToken,
    ClaimName,
    Group,
    HookAddress,
    Networks,
    Number,
    OptionalFileName,
    OptionalText,
    Texts,
    setting,
)

MIN_TOKEN = 16
"""Characters that an admin token has at least."""


class Security(Group):
    """Permissions of clients."""

    policy: Literal["open", "jwt"] = setting(
        "open",
        "Security policy. open: the server does not verify names, and serves loopback only. jwt: clients send a JSON"
        " Web Token.",
    )
    allow_open: bool = setting(False, "Let the open policy serve other addresses than loopback.")
    jwt_keys: OptionalFileName = setting(
        None,
        "Keys that verify tokens: a file with a public key, a certificate, a shared secret or a JWK set, or the"
        " address of a JWK set.",
        expected="a file name, or an http or https address",
    )
    jwt_algorithms: Algorithms = setting(
        (),
        "Accepted signature algorithms. Not set: HS256 with a shared secret, else RS256, ES256 and EdDSA.",
        expected="names such as RS256, ES256, EdDSA, HS256",
    )
    jwt_audience: Texts = setting(
        (),
        "One of these must be in the token's aud. Not set: the token must have no aud.",
        expected="texts",
    )
    jwt_issuer: OptionalText = setting(None, "Required iss of the token. Not set: not checked.", expected="a text")
    jwt_leeway_ms: Number = setting(
        5000, "Largest difference between the clocks of issuer and server.", live=True, ge=0, le=3600000
    )
    jwt_refresh_ms: Number = setting(
        300000, "How long a JWK set is used before it is fetched again from its address.", live=True, ge=1000
    )
    jwt_subject_claim: ClaimName = setting("sub", "Claim with the subject, joe of client/joe/1.")
    jwt_subscribe_claim: ClaimName = setting(
        "subscribe", "Claim that lists the channels and patterns that may be subscribed to. Without it: none."
    )
    jwt_publish_claim: ClaimName = setting(
        "publish", "Claim that lists the channels and patterns that may be published to. Without it: none."
    )
    jwt_configure_claim: ClaimName = setting(
        "configure",
        "Claim that lists the channels and patterns whose topics may be configured and erased. Without it: none.",
    )
    jwt_group_claim: ClaimName = setting(
        "group",
        "Claim that lists the channels and patterns on which the client may join a consumer group. Without it: none.",
    )
    jwt_address_claim: ClaimName = setting(
        "address", "Claim that lists the subjects to which the client may address messages, or *. Without it: none."
    )
    jwt_presence_claim: ClaimName = setting(
        "presence",
        "Claim that lists the channels and patterns on which the client may be present, and whose members it may see. Without"
        " it: none.",
    )
    jwt_operator_claim: ClaimName = setting(
        "operator",
        "Claim that makes the client an operator: a role, which is view, operate or destroy; true is the same as destroy. A"
        " list has roles for channels too: operate:/orders/**.",
    )

    @model_validator(mode="after")
    def _jwt_has_keys(self) -> "Security":
        if self.policy == "jwt" and self.jwt_keys is None:
            raise ValueError("security.policy=jwt needs security.jwt_keys")
        return self


class Admin(Group):
    """Operators."""

    token: BearerToken = setting(
        None,
        "Secret of operators. Not set: a random one, kept in admin.token in storage.data_dir.",
        secret=True,
        expected=f"{IN_HEADER}, of at least {MIN_TOKEN} characters",
        min_length=MIN_TOKEN,
    )
    mask: Texts = setting(
        (),
        "Fields of message bodies that are hidden from operators, at any depth and in upper or lower case.",
        expected="names of fields, such as email,iban",
    )
    notice_webhook: HookAddress = setting(
        None,
        "Address to which the server POSTs notices as a JSON list: a receiver is on hold, or a session ended while"
        " messages waited. Not set: none.",
        secret=True,
        expected="an http or https address such as https://example.org/hook?key=secret",
    )
    notice_webhook_token: BearerToken = setting(
        None, "Bearer token for the webhook of notices. Not set: none is sent.", secret=True, expected=IN_HEADER
    )
    audit_max_entries: Number = setting(
        20000,
        "Maximum number of audit entries in the store. Beyond it, the oldest of the operator with the most are removed.",
        live=True,
        ge=1,
        le=1000000,
    )


class Limits(Group):
    """Caps and rates. 0 takes one away. Operators are exempt from rates and from all but the caps in all."""

    exempt_addresses: Networks = setting(
        ("127.0.0.0/8", "::1"),
        "Addresses without rate limits. Caps still apply to them.",
    )
    max_connections: Number = setting(
        50000,
        "Maximum number of connections in total. The server answers further connections with 503 and closes them.",
        live=True,
        ge=0,
    )
    max_connections_per_address: Number = setting(
        20000, "Maximum number of connections of one address that is not a trusted proxy.", live=True, ge=0
    )
    max_sessions: Number = setting(
        100000,
        "Maximum number of sessions. Beyond it, the server refuses handshakes with advice to retry later.",
        live=True,
        ge=0,
    )
    max_sessions_per_address: Number = setting(20000, "Maximum number of sessions of one address.", live=True, ge=0)
    max_sessions_per_subject: Number = setting(
        1000, "Maximum number of sessions of one subject, whatever its logins allow.", live=True, ge=0
    )
    max_subscriptions: Number = setting(500000, "Maximum number of subscriptions in total.", live=True, ge=0)
    max_subscriptions_per_address: Number = setting(
        200000, "Maximum number of subscriptions of the sessions of one address.", live=True, ge=0
    )
    max_subscriptions_per_session: Number = setting(
        10000, "Maximum number of subscriptions of one session.", live=True, ge=0
    )
    max_groups_per_session: Number = setting(
        1000, "Maximum number of consumer groups that one session is a member of.", live=True, ge=0
    )
    max_groups_per_account: Number = setting(
        10000,
        "Maximum number of consumer groups that the sessions of one address, or of one subject, are members of. A group counts"
        " once for each of its members.",
        live=True,
        ge=0,
    )
    max_presence: Number = setting(
        50000,
        "Maximum number of presences at one server: sessions, each counted once for each channel on which it is present.",
        live=True,
        ge=0,
    )
    max_presence_per_channel: Number = setting(
        1000, "Maximum number of sessions that are present on one channel.", live=True, ge=0
    )
    max_presence_per_session: Number = setting(
        100, "Maximum number of channels on which one session is present.", live=True, ge=0
    )
    max_presence_per_account: Number = setting(
        10000,
        "Maximum number of presences of the sessions of one subject; of sessions without a subject, of those of one address.",
        live=True,
        ge=0,
    )
    max_presence_bytes: Number = setting(
        1024, "Maximum size of the data with which a session is present on a channel, as JSON.", live=True, ge=0
    )
    max_channels: Number = setting(
        100000, "Maximum number of channels that clients have published to.", live=True, ge=0
    )
    max_queued_bytes: Number = setting(
        100663296,
        "Maximum bytes of messages in memory for all sessions together. Beyond it, the longest queues overflow.",
        live=True,
        ge=0,
    )
    max_pending_dead_letters: Number = setting(
        200000,
        "Maximum number of dead letters of the receivers of one address or subject that the store does not have yet. Beyond it,"
        " a session whose queue overflows ends.",
        live=True,
        ge=0,
    )
    max_queued_bytes_per_session: Number = setting(
        104857600, "Maximum size of the queue that a login may ask for (`queue.maxBytes`).", live=True, ge=0
    )
    max_calls_per_session: Number = setting(
        1000, "Maximum number of pending remote calls of one session.", live=True, ge=0
    )
    max_calls_per_address: Number = setting(
        20000, "Maximum number of pending remote calls of all sessions of one address.", live=True, ge=0
    )
    max_history_entries: Number = setting(
        1000000, "Maximum history that a publish may ask for. Topic rules may ask for more.", live=True, ge=0
    )
    max_stored_ratio: Number = setting(
        4,
        "Maximum size of the stored messages of one account, as a multiple of what is left in the store. It holds while more"
        " than half of the store's memory is used.",
        unit="times",
        live=True,
        ge=0,
    )
    max_scheduled: Number = setting(10000, "Maximum number of scheduled messages of one account.", live=True, ge=0)
    max_deliver_after_ms: Number = setting(
        31622400000, "How far ahead a message may be scheduled. The default is 366 days.", live=True, ge=0
    )
    handshakes_per_s: Number = setting(
        200, "Rate of handshakes of one address.", unit="handshakes a second", live=True, ge=0
    )
    handshakes_burst: Number = setting(10000, "Burst of handshakes of one address, after a pause.", live=True, ge=1)
    publishes_per_s: Number = setting(
        5000,
        "Rate of publishes of one address and of one subject, including service channels. Refused messages count too, and the"
        " meta messages of batches of more than 8.",
        unit="publishes a second",
        live=True,
        ge=0,
    )
    publishes_burst: Number = setting(
        50000, "Burst of publishes of one address and of one subject, after a pause.", live=True, ge=1
    )
    subscribes_per_s: Number = setting(
        2000,
        "Rate of subscribed channels of one address and of one subject.",
        unit="channels a second",
        live=True,
        ge=0,
    )
    subscribes_burst: Number = setting(100000, "Burst of subscribed channels, after a pause.", live=True, ge=1)
    channels_per_s: Number = setting(
        200, "Rate of new channels that one address publishes to.", unit="channels a second", live=True, ge=0
    )
    channels_burst: Number = setting(10000, "Burst of new channels of one address, after a pause.", live=True, ge=1)
    control_frames_per_s: Number = setting(
        50,
        "Rate of pings, pongs, fragments of less than 64 bytes and empty arrays of one WebSocket, also from exempt"
        " addresses. Beyond it, the server closes the WebSocket with code 1008.",
        unit="frames a second",
        live=True,
        ge=0,
    )
    control_frames_burst: Number = setting(
        250, "Burst of such frames of one WebSocket, after a pause.", unit="frames", live=True, ge=1
    )
    failed_tokens_per_s: Number = setting(
        10,
        "Rate of invalid tokens of one address, including loopback. Beyond it, the server checks no token.",
        unit="tokens a second",
        live=True,
        ge=0,
    )
    failed_tokens_burst: Number = setting(
        200, "Burst of invalid tokens of one address, after a pause.", live=True, ge=1
    )
