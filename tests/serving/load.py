"""Clients that ask one request after the other, as clients do that must have an answer."""

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException

CLIENTS = 4


@dataclass
class Load:
    """What clients saw, each of which asks one request after the other and tries a broken connection once more."""

    port: int
    body: bytes
    replies: list[tuple[str, float]] = field(default_factory=list)
    """version and score"""
    wrong: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    pause: float = 0.0
    """seconds of each client between requests"""
    again: int = 0
    """requests that were tried once more"""

    def client(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        while not self.stop.wait(self.pause):
            for attempt in range(2):
                try:
                    connection.request("POST", "/predict", self.body, {"Content-Type": "image/png"})
                    reply = connection.getresponse()
                    facts = json.loads(reply.read())
                    if reply.status == 200:
                        self.replies.append((facts["version"], facts["score"]))
                    else:
                        self.wrong.append(f"{reply.status}: {facts}")
                    break
                except (OSError, HTTPException) as error:
                    connection.close()
                    self.again += not attempt
                    if attempt:
                        self.wrong.append(repr(error))
        connection.close()

    @contextmanager
    def running(self):
        threads = [threading.Thread(target=self.client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
