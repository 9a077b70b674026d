"""What the commands of operators share: how one is made of its work, and the way to the server's `/admin/api`."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from crewel.admin.resource_path import resource
from crewel.bayeux.codec import encode
from crewel.bayeux.numbers import parse
from crewel.cli import bayeux_client
from crewel.errors import CrewelError
from crewel.outgoing_proxy import HINTS, Proxy, place

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

API = "/admin/api"
MAX_PAGE = 1000
"""Entries in a page of a list, and ids in a request, at most."""
_LIMIT_S = 60.0
_UNAUTHORIZED = 401

Query = Mapping[str, str | int]
WorkT = TypeVar("WorkT", bound=Callable[..., Coroutine[Any, Any, None]])

LISTED = 100
"""Entries of a list that a terminal is shown, unless the command line says how many."""
Count = Annotated[int | None, typer.Option(min=1, help=f"At most this many: {LISTED} on a terminal, otherwise all.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason, for the audit.")]


class Named(NamedTuple):
    """What a request is about."""

    values: Mapping[str, str]
    """The values of the variables of its path."""
    field: str = ""
    """The field of the answer that names it; empty if the answer does not."""
    name: str = ""
    """What that field has to be."""


class Admin:
    """The administration of one server."""

    def __init__(
        self, base: str, session: "ClientSession", proxy: Proxy | None, token: bayeux_client.Credential
    ) -> None:
        self._base = base
        self._session = session
        self._proxy = proxy
        self._token = token

    async def call(
        self, method: str, path: str, query: Query | None = None, body: Any = None, about: Named | None = None
    ) -> Any:
        """The JSON that answers this request. `about` gives the variables of the path their values. Raises CrewelError, also if
        the answer names something else."""
        path, query = _about(path, query or {}, about)
        async with self._answer(method, path, params=query, json=body) as response:
            answer = await response.json(loads=parse)
        if about is not None and about.field and answer.get(about.field) != about.name:
            text = f"the answer is about {answer.get(about.field)!r} and not about {about.name!r}"
            raise CrewelError(f"{text}: something on the way to the server has changed the path of the request")
        return answer

    async def chunks(self, path: str, query: Query, about: Named | None = None) -> AsyncIterator[bytes]:
        """What comes from this path, as it comes. Raises CrewelError, also if the server breaks off."""
        import aiohttp

        # An export may take hours; only silence is a failure.
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_LIMIT_S)
        path, query = _about(path, query, about)
        async with self._answer("GET", path, params=query, timeout=timeout) as response:
            async for chunk in response.content.iter_any():
                yield chunk

    async def pages(
        self, path: str, name: str, query: Query, count: int | None = None, size: int = MAX_PAGE
    ) -> AsyncIterator[dict[str, Any]]:
        """The entries of a list that the server answers page by page, under `name`; at most so many. Raises CrewelError."""
        left = count
        after: dict[str, str] = {}
        while left is None or left > 0:
            wanted = size if left is None else min(left, size)
            page = await self.call("GET", path, {**query, "count": wanted, **after})
            for entry in page[name]:
                yield entry
            if not page["next"]:
                return
            left = None if left is None else left - len(page[name])
            after = {"after": page["next"]}

    @asynccontextmanager
    async def _answer(self, method: str, path: str, **options: Any) -> AsyncIterator["ClientResponse"]:
        import aiohttp
        from yarl import URL

        server = self._base.removesuffix(API)
        where = place(server, self._proxy)
        try:
            # As it is encoded: `URL` would decode it, and encode it in its own way.
            url = URL(self._base + path, encoded=True)
            # A redirect that is followed makes a GET of a POST, or shows the token to another server.
            options = {**options, "headers": self._headers(), "allow_redirects": False}
            async with self._session.request(method, url, **options) as response:
                if response.status >= 300:
                    raise CrewelError(await self._refusal(response, where))
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
            from crewel.client.transports import reason_of

            hint = "" if self._proxy else bayeux_client.elsewhere(server)
            raise CrewelError(f"{where}: {reason_of(error, self._proxy)}{hint}") from None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise CrewelError(f"{where} does not answer like a Crewel server: {why}") from None

    def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    async def _refusal(self, response: "ClientResponse", where: str) -> str:
        """What the server, or what stands on the way to it, says of a refusal."""
        try:
            message = str((await response.json(content_type=None))["message"])
        except (ValueError, KeyError, TypeError):
            from crewel.client.transports import redirected

            hint = redirected(response) or HINTS.get(response.status, "")
            message = f"{where} answered {response.status} {response.reason}{hint}"
        if response.status == _UNAUTHORIZED:
            message += f"; {bayeux_client.how_to_get_token()}{bayeux_client.elsewhere(str(response.url))}"
        return message


def _text(value: Any) -> str:
    return encode(value).decode()


def _about(path: str, query: Query, about: Named | None) -> tuple[str, Query]:
    """Path and query of a request about this. Wrong usage ends the command with 2."""
    if about is None:
        return path, query
    try:
        found = resource(path, about.values)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return found.path, {**query, **found.query}


def given(**options: Any) -> dict[str, Any]:
    """The options that the command line has."""
    return {name: value for name, value in options.items() if value is not None}


def command(
    app: typer.Typer, name: str = "", text: str = "", options: Mapping[str, Any] | None = None
) -> Callable[[WorkT], WorkT]:
    """Make a command of `async def work(admin, …)`. Its options are those of the function, these, and where the
    server is; its help is `text`, or the docstring."""

    def make(work: WorkT) -> WorkT:
        def run(**asked: Any) -> None:
            token, file, url, proxy = (asked.pop(name) for name in _SERVER)
            operate(bayeux_client.credential(token, file), url, proxy, lambda admin: work(admin, **asked))

        _, *own = bayeux_client.parameters(work, {**(options or {}), **_SERVER})
        bayeux_client.take(run, own)
        app.command(name=name or work.__name__, help=text or work.__doc__)(run)
        return work

    return make


_SERVER = {
    "token": bayeux_client.Token,
    "token_file": bayeux_client.TokenFile,
    "url": (bayeux_client.Url, bayeux_client.DEFAULT_URL),
    "proxy": bayeux_client.Proxy,
}
"""Where the server is that a command asks, and who asks it."""


def operate(
    token: bayeux_client.Credential,
    url: str,
    proxy: str | None,
    work: Callable[[Admin], Coroutine[Any, Any, None]],
) -> None:
    """Run this work against the server with this Bayeux address. A signal ends it; what is done then stays done."""
    base = f"{bayeux_client.site(url)}{API}"
    found = bayeux_client.proxy_on_the_way(url, proxy)
    bayeux_client.run(_operate(base, token or bayeux_client.local_token(url, proxy), found, work))


async def _operate(
    base: str, token: bayeux_client.Credential, proxy: Proxy | None, work: Callable[[Admin], Coroutine[Any, Any, None]]
) -> None:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
    through = None if proxy is None else proxy.url
    async with aiohttp.ClientSession(timeout=timeout, json_serialize=_text, proxy=through) as session:
        await work(Admin(base, session, proxy, token))
