"""Those who stand before the vending machine: they send pictures, and know what is on them."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from threading import Event, Thread
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from equipoise.images.png import encode_png
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images

IMAGE_PIXELS = 64
MAX_CONCURRENT_REQUESTS = 4
BACKGROUND_IMAGE_COUNT = 200  # pictures that are sent again and again while something else happens
PRODUCT_NAMES = [product.name for product in MACHINE_PRODUCTS]


@dataclass
class SimulatedClients:
    """Of one service."""

    port: int
    seed: int = 7
    rendered_count: int = 0
    """pictures so far: nobody takes the same twice"""
    label_by_pixels: dict[bytes, str] = field(default_factory=dict)
    """what pictures show, by their pixels"""
    answers_by_version: Counter[str] = field(default_factory=Counter)
    """pictures, by the version that answered"""
    failure_reasons: list[str] = field(default_factory=list)
    """why requests were not answered"""

    def request_service(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> Any:
        """A reply; a broken connection is tried once more, as clients do."""
        for last in (False, True):
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request(method, path, body, {"content-type": content_type})
                reply = connection.getresponse()
                data = reply.read()
                if reply.status != 200:
                    raise ValueError(f"{method} {path}: {reply.status} {data[:200]!r}")
                return data if reply.headers["content-type"] == "image/png" else json.loads(data)
            except (OSError, HTTPException):
                if last:
                    raise
            finally:
                connection.close()
        return None

    def is_ready(self) -> bool:
        """Whether the service answers."""
        try:
            return bool(self.request_service("GET", "/ready")["ready"])
        except (OSError, HTTPException, ValueError):
            return False

    def served_version(self) -> str:
        """Of the bundle that answers."""
        return str(self.request_service("GET", "/models")["models"][0]["current"]["version"])

    def predict_label(self, image: Tensor) -> str | None:
        """What the service says of a picture."""
        try:
            found = self.request_service("POST", "/predict", encode_png(image), "image/png")
        except (OSError, HTTPException, ValueError) as error:
            self.failure_reasons.append(repr(error))
            return None
        self.answers_by_version[found["version"]] += 1
        return str(found["label"])

    def count_correct(self, count: int, scene: Scene | None = None) -> int:
        """Of so many new pictures, how many the service knew."""
        pictures, names = self.render_images(count, scene)
        with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as pool:
            said = list(pool.map(self.predict_label, pictures))
        return sum(one == name for one, name in zip(said, names, strict=True))

    def render_images(self, count: int, scene: Scene | None = None) -> tuple[Tensor, list[str]]:
        """New ones, and what they show."""
        places = np.arange(self.rendered_count, self.rendered_count + count)
        self.rendered_count += count
        found, labels = render_images(MACHINE_PRODUCTS, places, self.seed, IMAGE_PIXELS, scene)
        names = [PRODUCT_NAMES[int(label)] for label in labels]
        self.label_by_pixels |= {picture.numpy().tobytes(): name for picture, name in zip(found, names, strict=True)}
        return found, names

    def list_drift_captures(self, max_captures: int) -> list[dict[str, Any]]:
        """Requests from the drift that the service kept, the most useful first."""
        return list(self.request_service("GET", f"/capture?pool=drift&limit={max_captures}")["captures"])

    def label_captures(self, max_captures: int) -> int:
        """Say of kept pictures what they really show; how many were told."""
        kept = self.list_drift_captures(max_captures)
        for one in kept:
            pixels = np.asarray(Image.open(io.BytesIO(self.request_service("GET", f"/capture/{one['id']}"))))
            name = self.label_by_pixels[pixels.transpose(2, 0, 1).copy().tobytes()]
            self.request_service("POST", f"/capture/{one['id']}/label", json.dumps({"label": name}).encode())
        return len(kept)

    @contextmanager
    def send_in_background(self, scene: Scene, pause_seconds: float = 0.0) -> Iterator[None]:
        """They come and go meanwhile, one after the other, with a pause of seconds between them."""
        pictures, _ = self.render_images(BACKGROUND_IMAGE_COUNT, scene)
        stop = Event()

        def come() -> None:
            while True:
                for picture in pictures:
                    if stop.wait(pause_seconds):
                        return
                    self.predict_label(picture)

        thread = Thread(target=come, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
