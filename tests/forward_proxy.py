"""An HTTP proxy as companies have one: it tunnels with CONNECT, takes requests in absolute form, and may ask for a password.

It alone knows the names of servers: `hosts` says at which port of this machine one listens.

    async with ForwardProxy({"crewel.invalid": server.port}) as proxy:
        ...                                         # a client with proxy=proxy.url
    assert proxy.asked == ["CONNECT crewel.invalid:443"]
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from tests.cutting_proxy import CuttingProxy

_HEAD_END: Final = b"\r\n\r\n"
LOGIN: Final = "joe:s%3Acret"
"""Name and password in the address of a proxy that asks for them."""
_EXPECTED: Final = base64.b64encode(b"joe:s:cret")


class ForwardProxy(CuttingProxy):
    """A proxy at a free port of 127.0.0.1. With `has_login` it lets only clients with `LOGIN` through."""

    def __init__(self, hosts: Mapping[str, int], *, has_login: bool = False) -> None:
        super().__init__(None)
        self._hosts = hosts
        self._has_login = has_login
        self.asked: list[str] = []
        """What each connection asked for first: the method and the target."""

    @property
    def url(self) -> str:
        """Its address, with what it asks for."""
        return f"http://{f'{LOGIN}@' if self._has_login else ''}127.0.0.1:{self.port}"

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(_HEAD_END)
            method, target, _ = head.split(b" ", 2)
            self.asked.append(f"{method.decode()} {target.decode()}")
            is_tunnel = method == b"CONNECT"
            parts = urlsplit(("//" if is_tunnel else "") + target.decode())
            if self._has_login and b"\r\nProxy-Authorization: Basic " + _EXPECTED not in head:
                refusal = b"407 Proxy Authentication Required"
            elif (port := self._hosts.get(parts.hostname or "")) is None:
                refusal = b"502 Bad Gateway"
            else:
                server, upstream = await self._open_at(port)
                with contextlib.closing(upstream):
                    if is_tunnel:
                        writer.write(b"HTTP/1.1 200 Connection established" + _HEAD_END)
                    else:
                        upstream.write(_in_origin_form(head, parts.path, parts.query))
                    await self._carry(reader, writer, server, upstream)
                return
            writer.write(b"HTTP/1.1 " + refusal + b"\r\nContent-Length: 0\r\nConnection: close" + _HEAD_END)
            await writer.drain()


def _in_origin_form(head: bytes, path: str, query: str) -> bytes:
    """The head for the server itself: without what is for the proxy, and for one request unless it is an upgrade."""
    line, *fields = head.removesuffix(_HEAD_END).split(b"\r\n")
    kept = [field for field in fields if not field.lower().startswith(b"proxy-")]
    if not any(field.lower().startswith(b"upgrade:") for field in fields):
        kept = [field for field in kept if not field.lower().startswith(b"connection:")] + [b"Connection: close"]
    method, _, version = line.split(b" ")
    target = f"{path or '/'}{f'?{query}' if query else ''}".encode()
    return b"\r\n".join([b" ".join((method, target, version)), *kept]) + _HEAD_END
