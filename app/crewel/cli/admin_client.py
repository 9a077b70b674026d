"""What the commands of operators share: the way to the server's `/admin/api`."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

from crewel.cli import bayeux_client
from crewel.errors import CrewelError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

API = "/admin/api"
_HTTP = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_LIMIT_S = 60.0
_UNAUTHORIZED = 401
_PAGE = 1000


class Refusal(CrewelError):
    """The server has refused; the text is its own."""


class Admin:
    """The administration of one server."""

    def __init__(self, base: str, session: "ClientSession") -> None:
        self._base = base
        self._session = session

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """The JSON at this path. Raises CrewelError."""
        return await self._ask("GET", path, params=query or {})

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON that answers this body. Raises CrewelError."""
        return await self._ask("POST", path, **({} if body is None else {"json": body}))

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers this change of what is at the path. Raises CrewelError."""
        return await self._ask("PATCH", path, json=body)

    async def delete(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """The JSON that answers the removal of what is at this path. Raises CrewelError."""
        return await self._ask("DELETE", path, params=query or {})

    async def chunks(self, path: str, query: Mapping[str, str | int]) -> AsyncIterator[bytes]:
        """What comes from this path, as it comes. Raises CrewelError, also if the server breaks off."""
        import aiohttp

        try:
            timeout = aiohttp.ClientTimeout(total=None, sock_read=_LIMIT_S)
            async with self._session.get(self._base + path, params=query, timeout=timeout) as response:
                await _require_success(response)
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._unreachable(error) from None

    async def _ask(self, method: str, path: str, **options: Any) -> Any:
        import aiohttp

        try:
            async with self._session.request(method, self._base + path, **options) as response:
                await _require_success(response)
                return await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> CrewelError:
        why = str(error) or type(error).__name__
        return CrewelError(f"{self._base.removesuffix(API)} does not answer as a Crewel server does: {why}")


async def _require_success(response: "ClientResponse") -> None:
    if response.status < 400:
        return
    try:
        message = (await response.json())["message"]
    except (ValueError, KeyError, TypeError):
        message = f"the server answered {response.status} {response.reason}"
    if response.status == _UNAUTHORIZED:
        message += "; --token or CREWEL_TOKEN shows the admin token"
    raise Refusal(message)


def operate(url: str, token: str | None, work: Callable[[Admin], Awaitable[None]]) -> None:
    """Run this work against the server with this Bayeux address. A signal ends it; what is done then stays done."""
    base = _base(url)
    try:
        bayeux_client.run(_operate(base, token or bayeux_client.local_token(url), work))
    except bayeux_client.Interrupted as interrupted:
        raise typer.Exit(interrupted.exit_code) from None
    except BrokenPipeError:  # its reader has gone, and Python would flush once more at its end
        sys.stdout = None
        raise typer.Exit(0) from None


async def _operate(base: str, token: str | None, work: Callable[[Admin], Awaitable[None]]) -> None:
    import aiohttp

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        await work(Admin(base, session))


def _base(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _HTTP or not parts.netloc:
        raise typer.BadParameter(f"--url takes an address such as {bayeux_client.DEFAULT_URL}, not {url}")
    return f"{_HTTP[parts.scheme]}://{parts.netloc}{API}"


async def pages(admin: Admin, path: str, name: str, query: Mapping[str, str | int]) -> AsyncIterator[dict[str, Any]]:
    """The entries of a list that the server answers page by page, under `name`. Raises CrewelError."""
    after: dict[str, str] = {}
    while True:
        page = await admin.get(path, {"count": _PAGE, **query, **after})
        for entry in page[name]:
            yield entry
        if not page["next"]:
            return
        after = {"after": page["next"]}
