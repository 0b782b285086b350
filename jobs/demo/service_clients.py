"""What simulated clients of any service do: send images over HTTP, and count the answers and the failures."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Event, Thread
from typing import Any

from torch import Tensor

from equipoise.captures.capture import CaptureMetadata
from equipoise.errors import EquipoiseError
from equipoise.images.png import encode_png
from equipoise.storage.json_decoding import decode_json_value
from equipoise.workloads.vending.renderer import Scene

MAX_CONCURRENT_REQUESTS = 4
BACKGROUND_BATCH_IMAGES = 50  # images rendered at a time for the background load
HTTP_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class JudgedAnswers:
    """How a service answered some images, of which the truth is known."""

    right: int
    """images whose answer was wholly right"""
    average_precision: float | None = None
    """mean average precision of the boxes that a detector answered"""


@dataclass
class ServiceClients(ABC):
    """Clients of one service on this machine, with counts of its answers."""

    port: int
    seed: int = 7
    rendered_count: int = 0
    """images rendered so far, so that none is rendered twice"""
    answers_by_version: Counter[str] = field(default_factory=Counter)
    """number of answers by version of the bundle"""
    failure_reasons: list[str] = field(default_factory=list)
    """errors of the requests that were not answered"""

    @abstractmethod
    def render_images(self, count: int, scene: Scene | None = None) -> tuple[Tensor, Any]:
        """Render new images and return them with what they show."""

    @abstractmethod
    def send_and_judge(self, count: int, scenes: Sequence[Scene], run_images: int) -> JudgedAnswers:
        """Send new images under these lights in turn, in runs of `run_images`, and judge the answers."""

    def request_service(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> Any:
        """Send a request and return the reply, a PNG or parsed JSON; retry a broken connection once, as clients do."""
        return request_json(self.port, method, path, body, content_type)

    def is_ready(self) -> bool:
        """Return whether the service says that it is ready."""
        try:
            return bool(self.request_service("GET", "/ready")["ready"])
        except (OSError, HTTPException, EquipoiseError):
            return False

    def served_version(self) -> str:
        """Return the version of the bundle that currently answers."""
        return str(self.request_service("GET", "/models")["models"][0]["current"]["version"])

    def predict_image(self, image: Tensor) -> dict[str, Any] | None:
        """Return the service's answer to an image; None, with the reason recorded, if it fails."""
        try:
            answer: dict[str, Any] = self.request_service("POST", "/predict", encode_png(image), "image/png")
        except (OSError, HTTPException, EquipoiseError) as error:
            self.failure_reasons.append(repr(error))
            return None
        self.answers_by_version[answer["version"]] += 1
        return answer

    def predict_images(self, images: Tensor) -> list[dict[str, Any] | None]:
        """Return the answers to images, sent up to four at a time."""
        with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as pool:
            return list(pool.map(self.predict_image, images))

    def list_drift_captures(self, max_captures: int) -> list[CaptureMetadata]:
        """List requests that the service captured during the drift, the most useful to label first."""
        return decode_json_value(
            self.request_service("GET", f"/capture?pool=drift&limit={max_captures}")["captures"],
            list[CaptureMetadata],
            code="service-unavailable",
            problem="cannot read the captures that the service lists",
        )

    @contextmanager
    def send_in_background(self, scene: Scene, pause_seconds: float = 0.0) -> Iterator[None]:
        """Send new images one after the other while the block runs, with a pause between them.

        No image is sent twice: a new condition is measured on captured requests, and repeated images hold too little.
        """
        stop = Event()

        def send_images() -> None:
            while True:
                for image in self.render_images(BACKGROUND_BATCH_IMAGES, scene)[0]:
                    if stop.wait(pause_seconds):
                        return
                    self.predict_image(image)

        thread = Thread(target=send_images, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def split_runs(count: int, scenes: Sequence[Scene], run_images: int) -> list[tuple[int, Scene]]:
    """Return runs of images with the light of each: the lights take turns."""
    starts = range(0, count, run_images)
    return [(min(run_images, count - start), scenes[index % len(scenes)]) for index, start in enumerate(starts)]


def request_json(
    port: int, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
) -> Any:
    """Send a request to this machine and return the reply, a PNG or parsed JSON; retry a broken connection once."""
    for is_last_try in (False, True):
        connection = HTTPConnection("127.0.0.1", port, timeout=HTTP_TIMEOUT_SECONDS)
        try:
            connection.request(method, path, body, {"content-type": content_type})
            return read_reply(f"{method} {path}", connection.getresponse())
        except (OSError, HTTPException):
            if is_last_try:
                raise
        finally:
            connection.close()
    return None


def read_reply(request: str, reply: HTTPResponse) -> Any:
    """Return a reply's PNG or its parsed JSON; refuse any other reply."""
    data = reply.read()
    if reply.status != 200:
        raise EquipoiseError("service-unavailable", f"{request} answers {reply.status}: {data[:200]!r}")
    if reply.headers["content-type"] == "image/png":
        return data
    try:
        return json.loads(data)
    except ValueError:
        raise EquipoiseError("service-unavailable", f"{request} answers what is not JSON: {data[:200]!r}") from None
