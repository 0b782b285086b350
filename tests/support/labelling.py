"""A labelling page on a real port, its pictures, and its API as a program uses it."""

import json
from contextlib import contextmanager
from http.client import HTTPConnection

from PIL import Image, ImageDraw

from jobs.cluster.processes import find_free_ports
from services.labelling.server import LabellingSettings, start_labelling

CLASSES = ("cola", "crisps", "water")
COLORS = ("#b02020", "#d0a020", "#3060c0")


def write_shelf(path, boxes, size=(120, 90)):
    """Write a picture with filled rectangles of the boxes (class index, x, y, width, height)."""
    image = Image.new("RGB", size, "#888888")
    for index, x, y, width, height in boxes:
        ImageDraw.Draw(image).rectangle((x, y, x + width - 1, y + height - 1), fill=COLORS[index])
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def write_pictures(folder, count, size=(120, 90)):
    """Write pictures 000.png, ... with a rectangle each, and return their names."""
    for number in range(count):
        write_shelf(folder / f"{number:03}.png", [(number % 3, 10 + number % 40, 20, 30, 40)], size)
    return [f"{number:03}.png" for number in range(count)]


def build_guess(number, score=0.9):
    """Return the right guess for a picture of `write_pictures`, as `/predict` would."""
    box = {"label": CLASSES[number % 3], "x": 10 + number % 40, "y": 20, "width": 30, "height": 40, "score": score}
    return {"boxes": [box]}


@contextmanager
def serve_labelling(folder, **options):
    """Serve folder/photos with labels in folder/labels until the end of the block, and yield the client."""
    (port,) = find_free_ports(1)
    given = {"images": folder / "photos", "labels": folder / "labels", "kind": "boxes", "classes": CLASSES}
    settings = LabellingSettings(port=port, **given | options)
    server = start_labelling(settings)
    try:
        yield LabellingClient(port)
    finally:
        server.close(5)


class LabellingClient:
    """Program that uses the API of the page."""

    def __init__(self, port):
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"

    def request(self, method, path, body=None, **headers):
        """Return status and body; header names are given with underscores for hyphens."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def get(self, path, **headers):
        """Return status and parsed JSON."""
        status, content = self.request("GET", path, **headers)
        return status, json.loads(content)

    def post(self, path, payload, **headers):
        """Send JSON, or bytes as they are; return status and parsed JSON."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        status, content = self.request("POST", path, body, **headers)
        return status, json.loads(content)

    def next(self, holder, skip=()):
        """Return the next picture of a person, or None."""
        return self.post("/next", {"holder": holder, "skip": list(skip)})[1]["document"]

    def save(self, holder, opened, **labels):
        """Save labels of an opened picture, and return status and reply."""
        size = {name: opened[name] for name in ("picture", "width", "height")}
        return self.post("/save", {"holder": holder, "base_revision": opened["revision"], **size, **labels})
