"""How an operator's page signs in and out, and who it is: REST resources.

The cookie has the server's port in its name, because browsers share cookies between the servers of one host.
"""

from __future__ import annotations

from time import time
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from crewel.admin.administration import Administration
from crewel.admin.example import Example
from crewel.admin.feed import NOTICES, OVERVIEW
from crewel.admin.operation import About
from crewel.admin.request_fields import text_field
from crewel.admin.route import Ask, Route, json_response
from crewel.bayeux.codec import encode
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.errors import IllegalArgument, Refused
from crewel.qos.connect import MAX_SECRET
from crewel.qos.fields import text
from crewel.security.bad_token import BadToken
from crewel.security.grants import Grants, Role, Scope
from crewel.transports.forwarded import Client

ADMIN: Final = "admin"
"""The name of an operator with the admin token."""
_BY_JWT: Final = " (jwt)"
"""What follows this name where it is the subject of another token."""
_PATH: Final = "/admin"


def cookie_name(client: Client) -> str:
    """The name of the cookie by which this client is signed in. A host that is none, which strangers can send, has the usual
    port."""
    try:
        port = urlsplit(f"//{client.host}").port
    except ValueError:
        port = None
    return f"crewel_operator_{port or (443 if client.is_secure else 80)}"


def operator_of(grants: Grants) -> tuple[str, Scope]:
    """The operator's name and roles. Raises Refused for a client that is no operator."""
    if grants.scope.highest is None:
        raise Refused(f"403::{NOT_AUTHORIZED}", NOT_AUTHORIZED, "the token is not an operator's")
    who = grants.subject
    if who.replace(_BY_JWT, "") == ADMIN:  # no two operators have the same name, or they would share their jobs
        who += _BY_JWT
    return who or ADMIN, grants.scope


async def _sign_in(ask: Ask) -> web.Response:
    token, code = ask.fields.get("token"), ask.fields.get("code")
    if (token is None) is (code is None):
        raise IllegalArgument("token", "is required, or `code`, but not both")
    address = ask.client.address or ""
    try:
        if token is not None:
            grants = await ask.admin.limits.grants_of(f"Bearer {token}", ask.client.address)
        else:
            grants = await _enter(ask.admin, str(code), ask.client.address)
        who, scope = operator_of(grants)
    except (BadToken, Refused) as error:
        ask.admin.audit.refused("", None, "sign in", error.code, address=address)
        raise
    value, expires = ask.admin.sign_ins.seal(grants)
    ask.admin.audit.done(who, scope.highest, "sign in", address=address)
    response = json_response(encode(_view(ask.admin, who, scope, expires)))
    response.set_cookie(
        cookie_name(ask.client),
        value,
        path=_PATH,
        max_age=int(expires - time()),
        httponly=True,
        samesite="Strict",
        secure=ask.client.is_secure,
    )
    return response


async def _enter(admin: Administration, code: str, address: str | None) -> Grants:
    limits = admin.limits
    account = limits.account_of(address)
    limits.may_show_token(account)
    try:
        return await admin.sign_ins.enter(code)
    except BadToken:
        limits.token_failed(account)
        raise


async def _sign_out(ask: Ask) -> web.Response:
    assert ask.request is not None  # no other node signs a page out
    name = cookie_name(ask.client)
    value = ask.request.cookies.get(name)
    if value is not None:
        with ask.action("sign out"):
            await ask.admin.sign_ins.leave(value)
    response = json_response(encode({"who": ask.who}))
    response.del_cookie(name, path=_PATH, httponly=True, samesite="Strict", secure=ask.client.is_secure)
    return response


async def _feed(ask: Ask) -> dict[str, Any]:
    # Not without a subject, as the admin token is: that one may take any name.
    grants = Grants(ask.who, role=ask.scope.role, expires_at=ask.expires, page=ask.page)
    token, expires = ask.admin.sign_ins.feed(grants)
    return {
        "token": token,
        "expires": int(expires * 1000),
        "path": ask.admin.settings.bayeux.path,
        "channels": {"overview": OVERVIEW, "notices": NOTICES},
    }


async def _me(ask: Ask) -> dict[str, Any]:
    return _view(ask.admin, ask.who, ask.scope, ask.expires)


def _view(admin: Administration, who: str, scope: Scope, expires: float | None) -> dict[str, Any]:
    highest = scope.highest
    return {
        "who": who,
        "role": "" if highest is None else highest.word,
        "everywhere": None if scope.role is None else scope.role.word,
        "channels": [{"role": role.word, "patterns": sorted(names)} for role, names in scope.parts],
        "expires": None if expires is None else int(expires * 1000),
        "node": admin.node,
        "masked": sorted(admin.masks),
    }


_ME: Final = (
    "`who`, the operator's name. `role`: view, operate or destroy, the highest; `everywhere`: the role on all channels,"
    " or null; `channels`: a list of `role` and `patterns`, the roles on some channels. `expires`: when the sign-in or"
    " the token expires, in milliseconds since 1970, or null. `node`: the server's name; `masked`: names of fields that"
    " operators do not see."
)

SIGN_IN_ROUTES: Final = (
    Route(
        "POST",
        "/sign-in",
        "Sign in a page with a token, or with the code of a one-time link. Sets a cookie.",
        _sign_in,
        _ME,
        Example({"token": "the-admin-token"}, {"who": "admin", "role": "destroy"}),
        body=(
            text_field(
                "token", "The admin token, or a token whose claims make the page's user an operator.", text(MAX_SECRET)
            ),
            text_field("code", "The code of a link that `crewel serve` or `crewel console` has printed."),
        ),
        is_public=True,
        role=Role.VIEW,
        refusals={
            401: "The token or the code is invalid or has expired.",
            403: "The page has a foreign origin, or the token is not an operator's.",
        },
    ),
    Route(
        "POST",
        "/sign-out",
        "Sign the page out, at all nodes: its cookie, its live feeds and their tokens hold no more.",
        _sign_out,
        "`who`, the operator's name.",
        Example({}, {"who": "admin"}),
        role=Role.VIEW,
        about=About.MANY,
    ),
    Route(
        "POST",
        "/feed",
        "Get a token with which a page follows the live feed over Bayeux.",
        _feed,
        "`token`, for `ext.session.token` of a handshake; `expires`: when it expires for handshakes; `path`: the path"
        " of Bayeux; and `channels`: `overview`, with the overview after each sample, and `notices`. A notice has"
        " `node`, `at`, `kind` (`held`, `released`, `died`, `letters`, `job`) and the fields of its kind. The session"
        " has the operator's rights until the sign-in ends; a sign-out of the page ends the session, and the token.",
        Example({}, {"path": "/cometd", "channels": {"notices": "/__sys__notices"}}),
        role=Role.VIEW,
    ),
    Route(
        "GET",
        "/me",
        "Show who the operator is.",
        _me,
        _ME,
        Example({}, {"who": "admin", "role": "destroy", "everywhere": "destroy", "node": "heron"}),
        about=About.MANY,
    ),
)
