"""What pages of many trials cost: python -m benchmarks.pages [--trials 2000].

An index over that many runs, and a sweep whose tables have that many rows: seconds to build, size, and seconds until a
browser has drawn the page, beside those of the page of a sweep of twelve trials.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from playwright.sync_api import sync_playwright

from dashboards import build
from dashboards.experiments import load_experiment
from dashboards.page import write_page
from dashboards.reports import build_page, write_pages
from equipoise.hardware import describe_hardware
from equipoise.storage.atomic import write_json
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.dashboards.test_training_run import record

ROUNDS = 5


def main() -> None:
    """Print the build time, size and opening time of each page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials, browser = parser.parse_args().trials, shutil.which("chromium")
    if browser is None:
        sys.exit("cannot open pages: chromium is not installed; run apt-get install chromium")
    print(describe_hardware(torch.device("cpu")))
    print("| page | build, s | MB | open, s |\n|---|--:|--:|--:|")
    with TemporaryDirectory() as name, sync_playwright() as driver:
        engine = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for title, make_page in write_folders(Path(name), trials).items():
            seconds, page = time_call(make_page)
            open_seconds = statistics.median(
                time_call(lambda page=page: open_page(engine, page))[0] for _ in range(ROUNDS)
            )
            print(f"| {title} | {seconds:.2f} | {page.stat().st_size / 1e6:.1f} | {open_seconds:.2f} |", flush=True)
        engine.close()


def write_folders(root: Path, trials: int) -> dict[str, Callable[[], Path]]:
    """Write folders as jobs write them, and return a function that builds the page of each."""
    few, many, runs = (
        write_sweep_folder(root / "few", seeds=1),
        write_sweep_folder(root / "many", seeds=-(-trials // 12)),
        root / "runs",
    )
    for seed in range(trials):
        run = replace(record(), config=replace(record().config, seed=seed))
        write_json(runs / f"run-{seed}" / "record.json", run.to_json())
    write_pages(load_experiment(few))  # the imports of the first page are not part of the cost
    return {
        "curve of a sweep of 12 trials": lambda: build_curve_page(few),
        f"curve of a sweep of {-(-trials // 12) * 12:,} trials": lambda: build_curve_page(many),
        f"index of {trials:,} runs": lambda: build_index_page(runs),
    }


def build_curve_page(folder: Path) -> Path:
    """Build the curve page of a sweep."""
    return write_page(build_page(load_experiment(folder), "curve"), folder / "curve.html")


def build_index_page(root: Path) -> Path:
    """Build an index, without the pages that it links to."""
    build.MAX_WRITTEN_PAGES = 0
    return build.build_index(root, root / "index.html")


def open_page(engine: object, page: Path) -> Path:
    """Open a page in the browser and wait until everything is drawn."""
    tab = engine.new_page(viewport={"width": 1440, "height": 900})  # type: ignore[attr-defined]
    tab.goto(page.as_uri())
    tab.wait_for_selector("body[data-drawn]")
    tab.close()
    return page


def time_call(work: Callable[[], Path]) -> tuple[float, Path]:
    """Return the seconds of a call and the page that it returns."""
    start = time.perf_counter()
    page = work()
    return time.perf_counter() - start, page


if __name__ == "__main__":
    main()
