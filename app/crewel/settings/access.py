"""The settings about permissions, and how much one client, one address, one subject and all together may ask for."""

from typing import Literal

from pydantic import model_validator

from crewel.settings.types import (
    Algorithms,
    ClaimName,
    Group,
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
        "Security policy. open: names are not proved, so it serves loopback only. jwt: clients show a JSON Web Token.",
    )
    allow_open: bool = setting(False, "Let the open policy serve other addresses than loopback.")
    jwt_keys: OptionalFileName = setting(
        None,
        "What tokens are verified with: a file that holds a public key, a certificate, a shared secret or a JWK set,"
        " or the address of a JWK set.",
        expected="a file name, or an http or https address",
    )
    jwt_algorithms: Algorithms = setting(
        (),
        "Signatures that are accepted. Not set: HS256 with a shared secret, else RS256, ES256 and EdDSA.",
        expected="names such as RS256, ES256, EdDSA, HS256",
    )
    jwt_audience: Texts = setting(
        (),
        "One of these must be in the token's aud. Not set: a token must have none.",
        expected="texts",
    )
    jwt_issuer: OptionalText = setting(
        None, "The token's iss must be this. Not set: it is not looked at.", expected="a text"
    )
    jwt_leeway_ms: Number = setting(
        5000, "How far the clocks of issuer and server may differ.", live=True, ge=0, le=3600000
    )
    jwt_refresh_ms: Number = setting(
        300000, "How long a JWK set that has an address is used before it is fetched again.", live=True, ge=1000
    )
    jwt_subject_claim: ClaimName = setting("sub", "Claim that holds the subject, joe of client/joe/1.")
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
    jwt_operator_claim: ClaimName = setting("operator", "Claim that makes an operator if it is true.")

    @model_validator(mode="after")
    def _jwt_has_keys(self) -> "Security":
        if self.policy == "jwt" and self.jwt_keys is None:
            raise ValueError("security.policy=jwt needs security.jwt_keys")
        return self


class Admin(Group):
    """Operators."""

    token: OptionalText = setting(
        None,
        "Secret that makes an operator. Not set: a random one, kept in admin.token in storage.data_dir.",
        secret=True,
        expected=f"a text of at least {MIN_TOKEN} characters",
        min_length=MIN_TOKEN,
    )


class Limits(Group):
    """Caps and rates. 0 takes one away. Operators are exempt from rates and from all but the caps in all."""

    exempt_addresses: Networks = setting(
        ("127.0.0.0/8", "::1"),
        "Rates do not hold for these addresses: what runs on the machine itself is no stranger. Caps do.",
    )
    max_sessions: Number = setting(
        100000, "Most sessions in all. A handshake beyond is refused, with advice to come back later.", live=True, ge=0
    )
    max_sessions_per_address: Number = setting(20000, "Most sessions of one address.", live=True, ge=0)
    max_sessions_per_subject: Number = setting(
        1000, "Most sessions of one subject, however many its logins allow.", live=True, ge=0
    )
    max_subscriptions: Number = setting(500000, "Most subscriptions in all.", live=True, ge=0)
    max_subscriptions_per_address: Number = setting(
        200000, "Most subscriptions of the sessions of one address.", live=True, ge=0
    )
    max_subscriptions_per_session: Number = setting(10000, "Most subscriptions of one session.", live=True, ge=0)
    max_channels: Number = setting(
        100000, "Most channels that clients may have published to and that live.", live=True, ge=0
    )
    max_queued_bytes: Number = setting(
        100663296,
        "Most bytes of messages that wait in memory for all sessions together. Then the longest queues give way.",
        live=True,
        ge=0,
    )
    max_queued_bytes_per_session: Number = setting(
        104857600, "Largest queue that a login may ask for (`queue.maxBytes`).", live=True, ge=0
    )
    max_calls_per_session: Number = setting(
        1000, "Most remote calls of one session that wait for their result.", live=True, ge=0
    )
    max_history_entries: Number = setting(
        1000000, "Longest history that a publish may ask for. Rules for topics may ask for more.", live=True, ge=0
    )
    handshakes_per_s: Number = setting(200, "Handshakes of one address.", unit="handshakes a second", live=True, ge=0)
    handshakes_burst: Number = setting(10000, "Handshakes of one address at once, after a pause.", live=True, ge=1)
    publishes_per_s: Number = setting(
        5000,
        "Publishes of one address, and of one subject, to service channels too.",
        unit="publishes a second",
        live=True,
        ge=0,
    )
    publishes_burst: Number = setting(50000, "The same at once, after a pause.", live=True, ge=1)
    subscribes_per_s: Number = setting(
        2000, "Channels that one address, or one subject, subscribes to.", unit="channels a second", live=True, ge=0
    )
    subscribes_burst: Number = setting(100000, "The same at once, after a pause.", live=True, ge=1)
    channels_per_s: Number = setting(
        200, "Channels that one address is the first to publish to.", unit="channels a second", live=True, ge=0
    )
    channels_burst: Number = setting(10000, "The same at once, after a pause.", live=True, ge=1)
    failed_tokens_per_s: Number = setting(
        10,
        "Tokens of one address that do not hold, loopback included. Beyond, none is looked at.",
        unit="tokens a second",
        live=True,
        ge=0,
    )
    failed_tokens_burst: Number = setting(200, "The same at once, after a pause.", live=True, ge=1)
