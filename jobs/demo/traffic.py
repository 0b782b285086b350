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

from equipoise.images.png import encoded
from equipoise.workloads.vending.products import MACHINE
from equipoise.workloads.vending.renderer import Scene, rendered

SIZE = 64
AT_ONCE = 4
MEANWHILE = 200  # pictures that are sent again and again while something else happens
NAMES = [product.name for product in MACHINE]


@dataclass
class Customers:
    """Of one service."""

    port: int
    seed: int = 7
    shown: int = 0
    """pictures so far: nobody takes the same twice"""
    truth: dict[bytes, str] = field(default_factory=dict)
    """what pictures show, by their pixels"""
    answered: Counter[str] = field(default_factory=Counter)
    """pictures, by the version that answered"""
    unanswered: list[str] = field(default_factory=list)
    """why requests were not answered"""

    def ask(self, verb: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """A reply; a broken connection is tried once more, as clients do."""
        for last in (False, True):
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request(verb, path, body, {"content-type": kind})
                reply = connection.getresponse()
                data = reply.read()
                if reply.status != 200:
                    raise ValueError(f"{verb} {path}: {reply.status} {data[:200]!r}")
                return data if reply.headers["content-type"] == "image/png" else json.loads(data)
            except (OSError, HTTPException):
                if last:
                    raise
            finally:
                connection.close()
        return None

    def ready(self) -> bool:
        """Whether the service answers."""
        try:
            return bool(self.ask("GET", "/ready")["ready"])
        except (OSError, HTTPException, ValueError):
            return False

    def version(self) -> str:
        """Of the bundle that answers."""
        return str(self.ask("GET", "/models")["models"][0]["current"]["version"])

    def label(self, picture: Tensor) -> str | None:
        """What the service says of a picture."""
        try:
            found = self.ask("POST", "/predict", encoded(picture), "image/png")
        except (OSError, HTTPException, ValueError) as error:
            self.unanswered.append(repr(error))
            return None
        self.answered[found["version"]] += 1
        return str(found["label"])

    def right(self, count: int, scene: Scene | None = None) -> int:
        """Of so many new pictures, how many the service knew."""
        pictures, names = self.pictures(count, scene)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            said = list(pool.map(self.label, pictures))
        return sum(one == name for one, name in zip(said, names, strict=True))

    def pictures(self, count: int, scene: Scene | None = None) -> tuple[Tensor, list[str]]:
        """New ones, and what they show."""
        places = np.arange(self.shown, self.shown + count)
        self.shown += count
        found, labels = rendered(MACHINE, places, self.seed, SIZE, scene)
        names = [NAMES[int(label)] for label in labels]
        self.truth |= {picture.numpy().tobytes(): name for picture, name in zip(found, names, strict=True)}
        return found, names

    def kept(self, most: int) -> list[dict[str, Any]]:
        """Requests from the drift that the service kept, the most useful first."""
        return list(self.ask("GET", f"/capture?pool=drift&most={most}")["captures"])

    def labels(self, most: int) -> int:
        """Say of kept pictures what they really show; how many were told."""
        kept = self.kept(most)
        for one in kept:
            pixels = np.asarray(Image.open(io.BytesIO(self.ask("GET", f"/capture/{one['id']}"))))
            name = self.truth[pixels.transpose(2, 0, 1).copy().tobytes()]
            self.ask("POST", f"/capture/{one['id']}/label", json.dumps({"label": name}).encode())
        return len(kept)

    @contextmanager
    def coming(self, scene: Scene, pause: float = 0.0) -> Iterator[None]:
        """They come and go meanwhile, one after the other, with a pause of seconds between them."""
        pictures, _ = self.pictures(MEANWHILE, scene)
        stop = Event()

        def come() -> None:
            while True:
                for picture in pictures:
                    if stop.wait(pause):
                        return
                    self.label(picture)

        thread = Thread(target=come, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
