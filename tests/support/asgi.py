"""Starlette requests whose body arrives in given parts, without a server."""

import asyncio

from starlette.requests import Request


class ScriptedBody:
    """Body that arrives part by part; after the last part, `receive` waits as for a client that sends no more."""

    def __init__(self, *parts: bytes, is_complete: bool = True, disconnects: bool = False) -> None:
        self.messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        if disconnects:
            self.messages.append({"type": "http.disconnect"})
        elif is_complete:
            self.messages.append({"type": "http.request", "body": b"", "more_body": False})
        self.num_received = 0

    async def receive(self) -> dict:
        """Return the next message."""
        if self.num_received == len(self.messages):
            await asyncio.Event().wait()
        self.num_received += 1
        return self.messages[self.num_received - 1]


def build_request(body: ScriptedBody | None = None, method: str = "POST", **headers: str) -> Request:
    """Build a request; header names are given with underscores for hyphens."""
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/predict", "query_string": b"", "headers": raw, "state": {}}
    return Request(scope, (body or ScriptedBody()).receive)
