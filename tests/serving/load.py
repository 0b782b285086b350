"""Clients that each send one request after the other, and retry a request once when its connection breaks."""

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException

NUM_CLIENTS = 4


@dataclass
class LoadGenerator:
    """Threads that send the same image over and over, with the replies and failures that they saw."""

    port: int
    body: bytes
    replies: list[tuple[str, float]] = field(default_factory=list)
    """version and score"""
    failures: list[str] = field(default_factory=list)
    stop_event: threading.Event = field(default_factory=threading.Event)
    pause_seconds: float = 0.0
    """seconds that each client waits between requests"""
    num_retried: int = 0
    """number of requests that were sent a second time"""

    def send_requests(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        while not self.stop_event.wait(self.pause_seconds):
            for attempt in range(2):
                try:
                    connection.request("POST", "/predict", self.body, {"Content-Type": "image/png"})
                    reply = connection.getresponse()
                    prediction = json.loads(reply.read())
                    if reply.status == 200:
                        self.replies.append((prediction["version"], prediction["score"]))
                    else:
                        self.failures.append(f"{reply.status}: {prediction}")
                    break
                except (OSError, HTTPException) as error:
                    connection.close()
                    self.num_retried += not attempt
                    if attempt:
                        self.failures.append(repr(error))
        connection.close()

    @contextmanager
    def run_clients(self):
        threads = [threading.Thread(target=self.send_requests) for _ in range(NUM_CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop_event.set()
            for thread in threads:
                thread.join()
