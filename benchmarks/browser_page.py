"""Time a model in a browser page against onnxruntime outside of one: python -m benchmarks.browser_page BUNDLE ...

Each bundle's page is exported and opened in Chromium. Turns alternate: the same pictures in the page, and through the
bundle with onnxruntime on one thread. Medians of a picture's time are printed, for scaling and for the model.
"""

import io
import shutil
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from equipoise.bundle.bundle import PictureBundle, load_bundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.images.decode import load_image
from equipoise.images.placement import load_placed_image
from tests.support.detector_service import encode_picture
from tests.support.exported_pages import ask_page, export_page, serve_folder

PICTURE_SIZE = (1280, 960)  # as a camera of a computer gives
TURNS, CALLS_PER_TURN, UNTIMED_CALLS = 7, 5, 3


def main() -> None:
    """Print a line for each bundle."""
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"]) as browser,
    ):
        print(f"Chromium {browser.version}, a picture of {PICTURE_SIZE[0]}x{PICTURE_SIZE[1]}, milliseconds, medians")
        for name in sys.argv[1:]:
            print_bundle(Path(name), browser)


def print_bundle(folder: Path, browser: Any) -> None:
    """Print the times of one bundle, and the bytes of its page."""
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    data = encode_picture(np.asarray(Image.fromarray(pixels).resize(PICTURE_SIZE)), "JPEG")
    bundle = load_bundle(folder, "onnxruntime")
    assert isinstance(bundle, PictureBundle)
    turns: dict[str, list[float]] = {"page, scale": [], "page, model": [], "outside, model": []}
    with TemporaryDirectory() as scratch:
        page_folder = export_page(folder, Path(scratch) / "page")
        size = sum(path.stat().st_size for path in page_folder.rglob("*") if path.is_file())
        with serve_folder(page_folder) as url:
            page = browser.new_page()
            page.goto(url)
            page.wait_for_selector("body[data-drawn]")
            for _ in range(UNTIMED_CALLS):
                ask_page(page, "picture.jpg", data)
            for _ in range(TURNS):
                times = [ask_page(page, "picture.jpg", data)["times"] for _ in range(CALLS_PER_TURN)]
                turns["page, scale"].append(statistics.median(part["prepare"] for part in times))
                turns["page, model"].append(statistics.median(part["model"] for part in times))
                turns["outside, model"].append(time_bundle(bundle, data))
            page.close()
    medians = "; ".join(f"{name} {statistics.median(values):.2f}" for name, values in turns.items())
    ratio = statistics.median(
        page_time / outside for page_time, outside in zip(turns["page, model"], turns["outside, model"], strict=True)
    )
    print(f"{bundle.name}: {medians}; ratio of the model {ratio:.2f}; page of {size / 1e6:.2f} MB")


def time_bundle(bundle: PictureBundle, data: bytes) -> float:
    """Return the median milliseconds of onnxruntime for a picture, without decoding."""
    if isinstance(bundle, BoxesBundle):
        batch = load_placed_image(data, bundle.shape[1])[0][None]
    else:
        batch = load_image(io.BytesIO(data), bundle.shape)[None]
    times = []
    for _ in range(UNTIMED_CALLS + CALLS_PER_TURN):
        start = time.perf_counter()
        bundle.run_engine(batch)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[UNTIMED_CALLS:])


if __name__ == "__main__":
    main()
