"""How bytes travel: HTTP in two lanes, WebSocket, and what both check before a message is looked at.

`http_fast` answers plain POSTs at the connection, and `websocket_fast` makes a socket of it; `endpoint`, `http_aiohttp` and
`websocket` serve everything through aiohttp, also inside another application. Both ask `origins`, `cookies` and `bodies`. May
use the broker, and nothing of the store.
"""
