"""Requests to a detector as a service keeps them, and boxes that people draw in them."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from equipoise.boxes.box import LabelledBox
from equipoise.boxes.found_box import FoundBox
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.images.letterbox import letterbox_image
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.store import LabelStore
from tests.support.labelling import CLASSES, write_shelf

SQUARE = 48


def capture_shelf(store, number=0, size=(120, 90), pool="drift", score=0.8):
    """Offer a photograph with one rectangle as a detector of CLASSES answered it, and return the metadata and the box.

    The box is in pixels of the photograph.
    """
    box = (number % 3, 10 + number % 40, 20, 30, 40)
    path = Path(store.location) / "shelf.tmp.png"
    write_shelf(path, [box], size)
    encoded = path.read_bytes()
    path.unlink()
    with Image.open(io.BytesIO(encoded)) as image:
        square, letterbox = letterbox_image(image, SQUARE)
    sides = letterbox.boxes_to_square(np.array(box[1:], np.float64)).tolist()
    label = CLASSES[box[0]]
    known = {capture.id for capture in store.list_captures(limit=None)}
    request = CapturedRequest(
        picture=square,
        model="shelf",
        version="v1",
        label=label,
        scores=dict.fromkeys(CLASSES, 0.1) | {label: score},
        pool=pool,
        encoded=encoded,
        boxes=(FoundBox(label, score, *sides),),
    )
    assert store.offer(request)
    (new,) = [capture for capture in store.list_captures(limit=None) if capture.id not in known]
    return new, LabelledBox(label, *map(float, box[1:]))


def capture_and_label(folder, count, labelled=None, **options):
    """Capture photographs into folder/kept, label some of them in folder/labels, and return the captures and boxes."""
    store, labels = CaptureStore(str(folder / "kept"), 2 * count + 2), LabelStore(folder / "labels")
    labels.add_classes("boxes", CLASSES)
    captured = [capture_shelf(store, number, **options) for number in range(count)]
    for metadata, box in captured[: count if labelled is None else labelled]:
        save_boxes(folder, metadata.id, (box,))
    return captured


def save_boxes(folder, capture_id, boxes, size=(120, 90)):
    """Save boxes of a capture in folder/kept as the labelling page does."""
    (path,) = (folder / "kept").glob(f"*-{capture_id}.png")
    labels = PictureLabels(picture=path.name, width=size[0], height=size[1], boxes=tuple(boxes))
    return LabelStore(folder / "labels").save_labels(labels, 0)
