"""A service of a detector in the same process, and image files for it."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from services.http.server import HttpServer
from services.labelling.capture_page import build_capture_page
from services.limits import Limits
from services.monitoring.capture_sampler import LISTING_SECONDS, SECONDS_BETWEEN_USUAL, CaptureSampler
from services.monitoring.drift_observer import DriftObserver
from services.monitoring.metrics import Metrics
from services.routes.application import HttpApplication
from services.serving.model_versions import ModelSpec
from services.serving.models import ModelRegistry
from tests.support.local_monitor import LocalMonitor

CLOSE_SECONDS = 30.0


@dataclass(frozen=True)
class DetectorService:
    """Service of one detector, with what stands behind it."""

    port: int
    observer: DriftObserver
    monitor: LocalMonitor
    store: CaptureStore

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Return status and body of the reply; header names are given with underscores for hyphens."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            reply = connection.getresponse()
            return reply.status, reply.read()

    def ask(self, body: bytes, content_type: str = "image/png") -> Any:
        """Return the answer to an image."""
        status, reply = self.send("POST", "/predict", body, content_type=content_type)
        assert status == 200, reply
        return json.loads(reply)


@contextmanager
def start_detector_service(
    bundle: Path,
    folder: Path,
    label_dir: Path | None = None,
    api_keys: tuple[str, ...] = (),
    port: int = 0,
    captures_all: bool = True,
) -> Iterator[DetectorService]:
    """Start a service in this process that watches its requests and keeps some in `folder`, to label on a page."""
    store, metrics, monitor = open_captures(folder, captures_all), Metrics(), LocalMonitor(folder / "drift")
    observer = DriftObserver(
        metrics, monitor, 1.0, CaptureSampler(store, 0.0 if captures_all else SECONDS_BETWEEN_USUAL)
    )
    http_server = HttpServer("127.0.0.1", port)

    def create_application(loop: Any) -> HttpApplication:
        registry = ModelRegistry(Limits(), loop, observer)
        registry.apply_specs({"squares": ModelSpec(bundle=str(bundle))})
        bundles = [model.current.bundle for model in registry.models.values()]
        label_page = build_capture_page(store.location, str(label_dir), bundles, api_keys) if label_dir else None
        return HttpApplication(registry, Limits(), metrics, api_keys, capture_store=store, label_page=label_page)

    application = http_server.start(create_application)
    yield DetectorService(http_server.socket.getsockname()[1], observer, monitor, store)
    http_server.close(CLOSE_SECONDS)
    application.model_registry.apply_specs({})


def open_captures(folder: Path, captures_all: bool) -> CaptureStore:
    """Open the captures of a service, which looks for those of other replicas as rarely as a replica, or each time."""
    return CaptureStore(str(folder / "captures"), listing_seconds=0.0 if captures_all else LISTING_SECONDS)


def keep_pictures(bundle: BoxesBundle, folder: Path, pictures: Tensor, pools: Sequence[str]) -> None:
    """Keep pictures in the captures of a service that starts in `folder`, as its detector would answer them."""
    store = CaptureStore(str(folder / "captures"), seed=0)
    for picture, pool in zip(pictures, pools, strict=True):
        encoded = encode_picture(picture.permute(1, 2, 0).numpy())
        (boxes,) = bundle.find_boxes([encoded])
        request = CapturedRequest(
            picture=picture,
            model=bundle.name,
            version=bundle.manifest.version,
            label=bundle.classes[0],
            scores=dict.fromkeys(bundle.classes, 0.5),
            pool=pool,
            encoded=encoded,
            boxes=tuple(boxes),
        )
        assert store.offer(request)


def encode_picture(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    """Return pixels (height, width, 3) as an image file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()
