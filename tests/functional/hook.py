"""A webhook for tests: it notes what is POSTed to it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """An HTTP server that takes letters: it answers each request with the next of these statuses, then with 204."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.requests: list[tuple[str | None, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.requests.append((self.headers.get("Authorization"), body))
                status = hook.statuses.pop(0) if hook.statuses else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/letters?key=hidden"

    @property
    def taken(self) -> list[Any]:
        return [letter for _, body in self.requests for letter in body]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
