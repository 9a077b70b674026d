"""The settings about who may do what."""

from typing import Literal

from pydantic import model_validator

from crewel.settings.kinds import Algorithms, Group, Number, OptionalFileName, OptionalText, Texts, setting

_MS = "ms"
MIN_TOKEN = 16
"""Characters that an admin token has at least."""

_CLAIM = r"^\S{1,128}$"


class Security(Group):
    """Who may do what."""

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
        5000, "How far the clocks of issuer and server may differ.", unit=_MS, live=True, ge=0, le=3600000
    )
    jwt_refresh_ms: Number = setting(
        300000,
        "How long a JWK set that has an address is used before it is fetched again.",
        unit=_MS,
        live=True,
        ge=1000,
    )
    jwt_subject_claim: str = setting(
        "sub", "Claim that holds the subject, joe of client/joe/1.", pattern=_CLAIM, expected="the name of a claim"
    )
    jwt_subscribe_claim: str = setting(
        "subscribe",
        "Claim that lists the channels and patterns that may be subscribed to. Without it: none.",
        pattern=_CLAIM,
        expected="the name of a claim",
    )
    jwt_publish_claim: str = setting(
        "publish",
        "Claim that lists the channels and patterns that may be published to. Without it: none.",
        pattern=_CLAIM,
        expected="the name of a claim",
    )
    jwt_configure_claim: str = setting(
        "configure",
        "Claim that lists the channels and patterns whose topics may be configured and erased. Without it: none.",
        pattern=_CLAIM,
        expected="the name of a claim",
    )
    jwt_group_claim: str = setting(
        "group",
        "Claim that lists the channels and patterns on which the client may join a consumer group. Without it: none.",
        pattern=_CLAIM,
        expected="the name of a claim",
    )
    jwt_address_claim: str = setting(
        "address",
        "Claim that lists the subjects to which the client may address messages, or *. Without it: none.",
        pattern=_CLAIM,
        expected="the name of a claim",
    )
    jwt_operator_claim: str = setting(
        "operator", "Claim that makes an operator if it is true.", pattern=_CLAIM, expected="the name of a claim"
    )

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
