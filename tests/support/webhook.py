"""Server that records the messages which a service posts to its webhook."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class WebhookServer(HTTPServer):
    """Local server of a webhook."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), WebhookHandler)
        self.messages: list[dict[str, Any]] = []


class WebhookHandler(BaseHTTPRequestHandler):
    """Records the messages that are posted."""

    server: WebhookServer

    def do_POST(self) -> None:
        """Record a message."""
        self.server.messages.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep standard error free of access logs; tests read the recorded messages."""


@contextmanager
def start_webhook() -> Iterator[WebhookServer]:
    """Run the server of a webhook for the length of the block."""
    server = WebhookServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
