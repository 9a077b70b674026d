"""The transports: HTTP in two lanes, WebSocket, and the checks of both before a message is read.

`http_fast` answers plain POSTs at the connection, and `websocket_fast` makes a socket of it; `endpoint`, `http_aiohttp` and
`websocket` serve everything through aiohttp, also inside another application. Both use `origins`, `forwarded` and `bodies`. May
use the broker, but nothing of the store.
"""
