"""The transports: HTTP in two lanes, WebSocket, and the checks of both before a message is read.

`http_fast` answers plain POSTs at the connection; `endpoint` and `http_aiohttp` serve everything through aiohttp, also inside
another application. Upgrades come to `websocket` from both lanes. Both use `origins`, `forwarded` and `bodies`. May use the
broker, but nothing of the store.
"""
