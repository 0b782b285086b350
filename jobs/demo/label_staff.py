"""Simulated staff who draw boxes through the HTTP API of the labelling page, each at a page of their own."""

import io
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from equipoise.boxes.box import LabelledBox
from equipoise.labels.picture_labels import boxes_to_json, clip_box
from equipoise.type_aliases import FloatArray
from jobs.demo.service_clients import request_json

STAFF_NAMES = ("Ada", "Bo")
BOX_NOISE_PIXELS = 2.0  # standard deviation by which the side of a box is off: nobody draws to the pixel
MIN_SIDE_PIXELS = 2.0


@dataclass(frozen=True, kw_only=True)
class LabellingWork:
    """What the staff have done."""

    pictures: int
    boxes: int
    by_author: dict[str, int]
    """pictures that each of them has labelled"""


class LabelStaff:
    """People at the labelling page, who see what is in a picture and draw it nearly right."""

    def __init__(
        self, port: int, boxes_by_pixels: Mapping[bytes, FloatArray], class_names: Sequence[str], seed: int = 0
    ) -> None:
        self.port, self.boxes_by_pixels, self.class_names = port, boxes_by_pixels, class_names
        self.seed = seed
        self.remaining = 0
        self.lock = Lock()

    def label_pictures(self, max_pictures: int) -> LabellingWork:
        """Label pictures together until so many are done or none is left."""
        self.remaining = max_pictures
        with ThreadPoolExecutor(len(STAFF_NAMES)) as pool:
            counts = list(pool.map(self._work_at_page, range(len(STAFF_NAMES))))
        return LabellingWork(
            pictures=sum(pictures for pictures, _ in counts),
            boxes=sum(boxes for _, boxes in counts),
            by_author={name: pictures for name, (pictures, _) in zip(STAFF_NAMES, counts, strict=True)},
        )

    def _work_at_page(self, index: int) -> tuple[int, int]:
        """Take one picture after the other as one person, and return the numbers of pictures and boxes saved."""
        rng, holder = np.random.default_rng((self.seed, index)), f"page-{index}"
        pictures = boxes = 0
        while self._take_turn():
            document = self._post("/next", {"holder": holder, "skip": []})["document"]
            if document is None:
                break
            drawn = self._draw_boxes(document, rng)
            facts = {name: document[name] for name in ("picture", "width", "height")}
            saved = {"holder": holder, "author": STAFF_NAMES[index], "base_revision": document["revision"], **facts}
            self._post("/save", saved | {"boxes": boxes_to_json(drawn)})
            pictures, boxes = pictures + 1, boxes + len(drawn)
        self._post("/release", {"holder": holder})
        return pictures, boxes

    def _take_turn(self) -> bool:
        """Return whether there is a picture left to be labelled, and take it."""
        with self.lock:
            self.remaining -= 1
            return self.remaining >= 0

    def _draw_boxes(self, document: Mapping[str, Any], rng: np.random.Generator) -> list[LabelledBox]:
        """Look at a picture as the page shows it, and draw a box around each product."""
        content = request_json(self.port, "GET", f"/picture?name={quote(document['picture'])}")
        pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)
        boxes = self.boxes_by_pixels[np.ascontiguousarray(pixels).tobytes()]
        drawn = [draw_box(self.class_names[int(row[0])], row[1:5], rng) for row in boxes]
        parts = [clip_box(box, document["width"], document["height"]) for box in drawn]
        return [part for part in parts if part]

    def _post(self, path: str, contents: object) -> Any:
        """Send JSON to the page's API and return its answer."""
        return request_json(self.port, "POST", path, json.dumps(contents).encode())


def draw_box(label: str, sides: FloatArray, rng: np.random.Generator) -> LabelledBox:
    """Return a box (left, top, width, height) as a person draws it: each side is off by a pixel or two."""
    left, top, width, height = sides
    left, top, right, bottom = np.array([left, top, left + width, top + height]) + rng.normal(0, BOX_NOISE_PIXELS, 4)
    new_width, new_height = max(right - left, MIN_SIDE_PIXELS), max(bottom - top, MIN_SIDE_PIXELS)
    return LabelledBox(label, float(left), float(top), float(new_width), float(new_height))
