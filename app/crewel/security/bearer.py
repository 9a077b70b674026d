"""The bearer token of an HTTP request: what it grants."""

from __future__ import annotations

from crewel.security.grants import OPERATOR, Grants
from crewel.security.jwt import BadToken, JwtPolicy
from crewel.security.policy import SecurityPolicy
from crewel.security.tokens import AdminToken


async def grants_of(authorization: str, admin: AdminToken, policy: SecurityPolicy) -> Grants:
    """What the token in this `Authorization` header grants: the admin token all, another one what the policy `jwt` reads in
    it. Raises BadToken if there is none, or one that does not hold."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise BadToken("a bearer token is asked for")
    if admin.matches(token):
        return OPERATOR
    if not isinstance(policy, JwtPolicy):
        raise BadToken("this is not the admin token")
    return await policy.tokens.read(token)
