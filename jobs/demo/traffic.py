"""Simulated clients of a vending service: they send rendered images and know what each of them shows."""

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from equipoise.captures.capture import CaptureMetadata
from equipoise.errors import EquipoiseError
from equipoise.images.png import encode_png
from equipoise.storage.json_decoding import decode_json_value
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images

IMAGE_PIXELS = 64
MAX_CONCURRENT_REQUESTS = 4
BACKGROUND_BATCH_IMAGES = 50  # images rendered at a time for the background load
PRODUCT_NAMES = [product.name for product in MACHINE_PRODUCTS]


@dataclass
class SimulatedClients:
    """Clients of one service on this machine, with counts of its answers."""

    port: int
    seed: int = 7
    rendered_count: int = 0
    """images rendered so far, so that none is rendered twice"""
    label_by_pixels: dict[bytes, str] = field(default_factory=dict)
    """true label of every image sent, by its pixels"""
    answers_by_version: Counter[str] = field(default_factory=Counter)
    """number of answers by version of the bundle"""
    failure_reasons: list[str] = field(default_factory=list)
    """errors of the requests that were not answered"""

    def request_service(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> Any:
        """Send a request and return the reply, a PNG or parsed JSON; retry a broken connection once, as clients do."""
        for is_last_try in (False, True):
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request(method, path, body, {"content-type": content_type})
                return read_reply(f"{method} {path}", connection.getresponse())
            except (OSError, HTTPException):
                if is_last_try:
                    raise
            finally:
                connection.close()
        return None

    def is_ready(self) -> bool:
        """Return whether the service says that it is ready."""
        try:
            return bool(self.request_service("GET", "/ready")["ready"])
        except (OSError, HTTPException, EquipoiseError):
            return False

    def served_version(self) -> str:
        """Return the version of the bundle that currently answers."""
        return str(self.request_service("GET", "/models")["models"][0]["current"]["version"])

    def predict_label(self, image: Tensor) -> str | None:
        """Return the label that the service predicts for an image; None, with the reason recorded, if it fails."""
        try:
            prediction = self.request_service("POST", "/predict", encode_png(image), "image/png")
        except (OSError, HTTPException, EquipoiseError) as error:
            self.failure_reasons.append(repr(error))
            return None
        self.answers_by_version[prediction["version"]] += 1
        return str(prediction["label"])

    def count_correct(self, count: int, scene: Scene | None = None) -> int:
        """Send `count` new images, up to four at a time, and return how many were labelled correctly."""
        return self.count_correct_images(*self.render_images(count, scene))

    def count_correct_images(self, images: Tensor, names: list[str]) -> int:
        """Send images, up to four at a time, and return how many were labelled with these names."""
        with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as pool:
            labels = list(pool.map(self.predict_label, images))
        return sum(label == name for label, name in zip(labels, names, strict=True))

    def render_images(self, count: int, scene: Scene | None = None) -> tuple[Tensor, list[str]]:
        """Render new images and return them with the names of the products that they show."""
        indices = np.arange(self.rendered_count, self.rendered_count + count)
        self.rendered_count += count
        images, labels = render_images(MACHINE_PRODUCTS, indices, self.seed, IMAGE_PIXELS, scene)
        names = [PRODUCT_NAMES[int(label)] for label in labels]
        self.label_by_pixels |= {image.numpy().tobytes(): name for image, name in zip(images, names, strict=True)}
        return images, names

    def render_mixed_images(self, count: int, scenes: Sequence[Scene], run_images: int) -> tuple[Tensor, list[str]]:
        """Render new images under several lights in turn, in runs of `run_images`, with the names of the products."""
        starts = range(0, count, run_images)
        runs = [
            self.render_images(min(run_images, count - start), scenes[index % len(scenes)])
            for index, start in enumerate(starts)
        ]
        return torch.cat([images for images, _ in runs]), [name for _, names in runs for name in names]

    def list_drift_captures(self, max_captures: int) -> list[CaptureMetadata]:
        """List requests that the service captured during the drift, the most useful to label first."""
        return decode_json_value(
            self.request_service("GET", f"/capture?pool=drift&limit={max_captures}")["captures"],
            list[CaptureMetadata],
            code="service-unavailable",
            problem="cannot read the captures that the service lists",
        )

    def label_captures(self, max_captures: int) -> int:
        """Give captured images their true labels and return the number labelled."""
        captures = self.list_drift_captures(max_captures)
        for capture in captures:
            pixels = np.asarray(Image.open(io.BytesIO(self.request_service("GET", f"/capture/{capture.id}"))))
            name = self.label_by_pixels[pixels.transpose(2, 0, 1).copy().tobytes()]
            self.request_service("POST", f"/capture/{capture.id}/label", json.dumps({"label": name}).encode())
        return len(captures)

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
                    self.predict_label(image)

        thread = Thread(target=send_images, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


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
