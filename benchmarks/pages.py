"""What pages of many trials cost: python -m benchmarks.pages [--trials 2000]

An index over that many runs, and a sweep whose tables have that many rows: seconds to build, size, and seconds until a
browser has drawn it, beside those of a page of a sweep of twelve trials.
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
from tests.support.sweep_folders import sweep
from tests.unit.dashboards.test_training_run import record

ROUNDS = 5


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--trials", type=int, default=2000)
    trials, browser = asked.parse_args().trials, shutil.which("chromium")
    if browser is None:
        sys.exit("no chromium here: apt-get install chromium")
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    print("| page | build, s | MB | open, s |\n|---|--:|--:|--:|")
    with TemporaryDirectory() as name, sync_playwright() as driver:
        engine = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for words, make in made(Path(name), trials).items():
            seconds, page = timed(make)
            opened = statistics.median(timed(lambda page=page: looked(engine, page))[0] for _ in range(ROUNDS))
            print(f"| {words} | {seconds:.2f} | {page.stat().st_size / 1e6:.1f} | {opened:.2f} |", flush=True)
        engine.close()


def made(root: Path, trials: int) -> dict[str, Callable[[], Path]]:
    """Folders as jobs leave them, and what makes a page of each."""
    few, many, runs = sweep(root / "few", seeds=1), sweep(root / "many", seeds=-(-trials // 12)), root / "runs"
    for seed in range(trials):
        one = replace(record(), config=replace(record().config, seed=seed))
        write_json(runs / f"run-{seed}" / "record.json", one.to_json())
    write_pages(load_experiment(few))  # what is imported with the first page is not of a page
    return {
        "curve of a sweep of 12 trials": lambda: curve(few),
        f"curve of a sweep of {-(-trials // 12) * 12:,} trials": lambda: curve(many),
        f"index of {trials:,} runs": lambda: indexed(runs),
    }


def curve(place: Path) -> Path:
    """A sweep's."""
    return write_page(build_page(load_experiment(place), "curve"), place / "curve.html")


def indexed(root: Path) -> Path:
    """An index, without the pages that it leads to."""
    build.MAX_WRITTEN_PAGES = 0
    return build.build_index(root, root / "index.html")


def looked(engine: object, page: Path) -> Path:
    """Until all is drawn."""
    tab = engine.new_page(viewport={"width": 1440, "height": 900})  # type: ignore[attr-defined]
    tab.goto(page.as_uri())
    tab.wait_for_selector("body[data-drawn]")
    tab.close()
    return page


def timed(work: Callable[[], Path]) -> tuple[float, Path]:
    """Seconds, and what came of it."""
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


if __name__ == "__main__":
    main()
