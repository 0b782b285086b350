"""Seconds until the labelling page shows its first and its next picture, by the number of pictures in the queue.

python -m benchmarks.label_queue [--counts 100 5000] [--saves 20]

The page's own requests are sent: the page, /next with the picture, /save and /next with the next picture. Half of the
pictures are labelled already.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from equipoise.boxes.box import LabelledBox
from equipoise.hardware import describe_hardware
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.store import LabelStore
from tests.support.labelling import LabellingClient, serve_labelling, write_pictures

SIZE = (1280, 960)


def main() -> None:
    """Print a row for each number of pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="*", default=[100, 5000])
    parser.add_argument("--saves", type=int, default=20)
    arguments = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    print("\n| pictures | labelled | first page ms | first picture ms | save ms | next picture ms |")
    print("|--:|--:|--:|--:|--:|--:|")
    for count in arguments.counts:
        with TemporaryDirectory() as name:
            write_queue(Path(name), count)
            with serve_labelling(Path(name)) as client:
                print(f"| {count:,} | {count // 2:,} | {measure_page(client, arguments.saves)} |", flush=True)


def write_queue(folder: Path, count: int) -> None:
    """Write a picture under many names, and labels for every second one."""
    (first,) = write_pictures(folder / "photos", 1, SIZE)
    store, box = LabelStore(folder / "labels"), LabelledBox("cola", 10.0, 20.0, 30.0, 40.0)
    for number in range(count):
        name = f"{number:05}.png"
        (folder / "photos" / name).hardlink_to(folder / "photos" / first)
        if number % 2:
            store.save_labels(PictureLabels(picture=name, width=SIZE[0], height=SIZE[1], boxes=(box,)), 0)
    (folder / "photos" / first).unlink()


def measure_page(client: LabellingClient, saves: int) -> str:
    """Return the cells of a row: the page, its first picture, and medians of saving and of the next picture."""
    page_seconds, _ = measure_seconds(lambda: client.request("GET", "/"))
    first_seconds, opened = measure_seconds(lambda: open_next(client))
    save_seconds, next_seconds = [], []
    for _ in range(saves):
        current = opened
        save_seconds.append(measure_seconds(lambda: client.save("anna", current, boxes=[]))[0])  # noqa: B023 # called now
        seconds, opened = measure_seconds(lambda: open_next(client))
        next_seconds.append(seconds)
    medians = (statistics.median(save_seconds), statistics.median(next_seconds))
    return " | ".join(f"{1000 * seconds:.0f}" for seconds in (page_seconds, first_seconds, *medians))


def open_next(client: LabellingClient) -> Any:
    """Open the next picture and fetch it."""
    opened = client.next("anna")
    client.request("GET", f"/picture?name={opened['picture']}")
    return opened


def measure_seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long an action takes, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
