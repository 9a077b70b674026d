"""aiosfstream-ng as a consumer of Salesforce's streaming API: its OAuth login, its replay storage. Prints the number of each
order."""

from __future__ import annotations

import asyncio
import sys

from aiosfstream_ng import Client, PasswordAuthenticator

LOGIN_URL, CHANNEL = sys.argv[1:]


class Authenticator(PasswordAuthenticator):
    """The password flow, at another address than Salesforce's."""

    @property
    def _token_url(self) -> str:
        return f"{LOGIN_URL}/services/oauth2/token"


async def main() -> None:
    authenticator = Authenticator("key", "secret", "user@example.com", "password")
    async with Client(authenticator, replay={}, connection_timeout=0) as client:
        await client.subscribe(CHANNEL)
        async for message in client:
            print(message["data"]["payload"]["No__c"], flush=True)


asyncio.run(main())
