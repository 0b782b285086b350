"""Start Ray Serve for services that listen by themselves, and print where they answer."""

import logging
import os
import sys

import ray
from ray import serve

from services.http.server import require_unused_port

READY_TEXT = " is ready"
"""in the line that Ray Serve logs once an application is ready, the last one of `serve run`"""


def start_serve_without_proxy(host: str, port: int, url: str) -> None:
    """Start Serve without proxies, unless Ray is initialized already: then its owner decides about proxies.

    Without `url`, Serve would say that the application is ready at the port that a proxy has by default. A port on
    which another service listens is refused: both would share it and answer by turns.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault(
        "RAY_worker_niceness", "0"
    )  # Ray lowers the priority of workers otherwise; this machine is for replicas
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use to its makers
    ray.init(namespace="serve")
    serve.start(proxy_location="Disabled", http_options={"root_url": url.rstrip("/")})
    if not serve.status().applications:  # an application that is deployed again listens there itself
        require_unused_port(host, port)


def announce_address(url: str) -> None:
    """Print where the service will answer, and print it again as the last line once it does.

    A Serve that an earlier command left running on the cluster keeps its first URL and names that one.
    """
    print(f"will answer at {url}", file=sys.stderr)  # noqa: T201
    logging.getLogger("ray.serve").addHandler(ReadyHandler(url))


class ReadyHandler(logging.Handler):
    """Handler that prints the address of the service after Serve has logged that it is ready."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def emit(self, record: logging.LogRecord) -> None:
        """Print the address if a record says that the application is ready."""
        if READY_TEXT in record.getMessage():
            print(f"answers at {self.url} until Ctrl-C", file=sys.stderr, flush=True)  # noqa: T201
