"""Exported pages that run a model in the browser: made from bundles, served as plain files, and asked for answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from equipoise.bundle.folder import verify_bundle
from jobs.publishing.browser.page_folder import write_page_folder
from jobs.publishing.browser.runtime_files import open_runtime
from tests.support.detector_service import encode_picture
from tests.support.ray_cluster import ROOT

RUNTIME = ROOT / ".venv" / "browser" / "node_modules" / "onnxruntime-web"


class QuietFileHandler(SimpleHTTPRequestHandler):
    """Serves the files of a folder, as any web server does, and logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Leave out the line of each request."""


@contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    """Serve the files of a folder until the end of the block, and yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFileHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def export_page(bundle: Path, out: Path) -> Path:
    """Export the page of a bundle with the runtime that is installed for tests."""
    if not RUNTIME.exists():
        pytest.skip("no onnxruntime-web here: make .venv/browser/ready")
    with open_runtime(RUNTIME) as runtime:
        write_page_folder(bundle, verify_bundle(bundle), runtime, out)
    return out


def ask_page(page: Any, name: str, data: bytes) -> Any:
    """Choose a picture on an open page, and return its answer."""
    page.evaluate(
        "() => { window.answered = new Promise((done) => addEventListener('answer', done, { once: true })); }"
    )
    page.set_input_files("#file", {"name": name, "mimeType": guess_type(name), "buffer": data})
    return page.evaluate("async () => (await window.answered).detail")


def guess_type(name: str) -> str:
    """Return the type that a browser tells for a file of this name."""
    suffix = Path(name).suffix[1:]
    return f"image/{'jpeg' if suffix == 'jpg' else suffix}"


def vary_picture(pixels: Any) -> dict[str, bytes]:
    """Return a picture (height, width, 3) in the sizes, shapes and formats that people have, by file name."""
    image = Image.fromarray(pixels)
    wide, tall = (np.pad(pixels, pad, mode="edge") for pad in (((0, 0), (2, 3), (0, 0)), ((4, 1), (0, 0), (0, 0))))
    large = image.resize((image.width * 23 + 5, image.height * 21), Image.Resampling.BICUBIC)
    seen_through = np.dstack([pixels, np.linspace(0, 255, pixels.shape[0] * pixels.shape[1]).reshape(pixels.shape[:2])])
    pictures = {
        "same.png": encode_picture(pixels),
        "large.png": encode_picture(np.asarray(large)),
        "wide.png": encode_picture(wide),
        "tall.png": encode_picture(tall),
        "small.png": encode_picture(np.asarray(image.resize((19, 23)))),
        "narrow.png": encode_picture(pixels[:, :3]),
        "dot.png": encode_picture(pixels[:1, :1]),
        "gray.png": encode_picture(np.asarray(image.convert("L"))),
        "deep.png": encode_picture(np.asarray(image.convert("L")).astype(np.uint16) * 257),
        "transparent.png": encode_picture(seen_through.astype(np.uint8)),
        "palette.gif": encode_picture(pixels, "GIF"),
        "plain.bmp": encode_picture(pixels, "BMP"),
        "exact.webp": encode_picture(np.asarray(large), "WEBP", lossless=True),
        "lossy.webp": encode_picture(np.asarray(large), "WEBP", quality=80),
        "photo.jpg": encode_picture(np.asarray(large), "JPEG", quality=90),
        "coarse.jpg": encode_picture(pixels, "JPEG", quality=40, progressive=True),
    }
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = orientation
        pictures[f"turned-{orientation}.jpg"] = encode_picture(wide, "JPEG", quality=95, subsampling=0, exif=exif)
    exif = Image.Exif()
    exif[0x112] = 6
    return pictures | {"turned.png": encode_picture(wide, exif=exif)}
