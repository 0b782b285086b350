"""What the site's experiments cost at 100,000 records: python -m benchmarks.site_experiments [--records 100000].

The records are those of sweeps, as benchmarks.listing writes them. Measured over HTTP on a real port: the first view of
the table, a filter and a sort by every column, a page in the middle, the CSV; the time to build the index and to look
for changes; memory; and what an idle site takes with ten pages open. A plan is computed within limits that change. The
CPU seconds are those of this process, which serves and asks: what a request would take on a machine that is idle. The
pages of an idle site are open in another process.
"""

import argparse
import random
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from benchmarks.listing import write_records
from equipoise.hardware import describe_hardware
from services.site.experiments.experiments_part import ExperimentsPart
from services.site.experiments.index_columns import SHOWN_COLUMNS
from services.site.site_parts import SiteContext
from tests.support.site import SiteClient, serve_site
from tests.support.sweep_folders import write_sweep_folder

ROUNDS = 2
OPEN_PAGES, IDLE_SECONDS, POLL_SECONDS = 10, 30.0, 5.0
FILTERS = ("lr>0.04", "workload=digits seed>=99000", "status~max", "seed-4711", "kind=trial test>0.5")


class CallTime(NamedTuple):
    """Wall and CPU seconds of a call."""

    wall: float
    cpu: float


def main() -> None:
    """Print the seconds of each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    count = parser.parse_args().records
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name:
        results, parts = Path(name) / "results", []
        results.mkdir()
        write_records(results, count)
        write_sweep_folder(results / "planned")
        before = measure_memory()

        def build_part(site: SiteContext) -> ExperimentsPart:
            parts.append(ExperimentsPart(site))
            return parts[0]

        with serve_site(results, None, [build_part]) as client:
            first_view = time_call(lambda: client.page("/experiments"))
            print(f"first view while the index is being built: {format_times([first_view])}", flush=True)
            index = parts[0].index
            cpu, wall = time.process_time(), time.perf_counter()
            while not index.is_complete:
                time.sleep(0.1)
            seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
            print(f"index of {count:,} records: {seconds:.1f} s more, {cpu_seconds:.1f} s CPU")
            print(f"memory: {measure_memory() - before:.0f} MB more than before")
            print_requests(client, count)
            print_plans(client)
            print_idle(client)
            cpu = time.process_time()
            index.update_now()
            print(f"looking for changes in all folders: {time.process_time() - cpu:.3f} s CPU")
            index.close()


def print_requests(client: SiteClient, count: int) -> None:
    """Print the time of each kind of view of the table."""
    print("| request | wall and CPU |\n|---|---|")
    views = {"first view": ["/experiments"]}
    views["sort by each column"] = [f"/experiments?sort={sign}{name}" for name in SHOWN_COLUMNS for sign in ("", "-")]
    views["filters"] = [f"/experiments?filter={text.replace('>', '%3E').replace(' ', '+')}" for text in FILTERS]
    views["filter and sort"] = [f"/experiments?filter=lr%3E0.04+kind%3Dtrial&sort=-{name}" for name in SHOWN_COLUMNS]
    views["a page in the middle"] = [f"/experiments?offset={count // 2}&sort=-seconds"]
    for title, paths in views.items():
        times = [time_call(lambda path=path: client.page(path)) for path in paths for _ in range(ROUNDS)]
        print(f"| {title} | {format_times(times)} |", flush=True)
    csv_time = time_call(lambda: client.request("GET", "/experiments.csv"))
    print(f"| CSV of all | {format_times([csv_time])} |", flush=True)


def print_plans(client: SiteClient) -> None:
    """Print the time of plans within limits that change."""
    first = time_call(lambda: client.page("/plan/planned"))
    rng = random.Random(0)  # noqa: S311 - any deadlines
    times = []
    for _ in range(20):
        path = f"/plan/planned?deadline={rng.uniform(20, 300):.1f}s&price={rng.uniform(1, 5):.2f}usd"
        times.append(time_call(lambda path=path: client.page(path, hx_request="true")))
    print(f"plan, first view with its fits: {format_times([first])}; moved: {format_times(times)}")


def print_idle(client: SiteClient) -> None:
    """Print the share of a processor that ten open pages take while nothing changes."""
    html = client.page("/experiments")[1]
    href = html.split('hx-get="')[1].split('"')[0].replace("&amp;", "&")
    with ProcessPoolExecutor(1, get_context("spawn")) as browsers:  # whose CPU time is not counted
        browsers.submit(poll_open_pages, client.port, href, 1).result()
        cpu = time.process_time()
        polls = browsers.submit(poll_open_pages, client.port, href, IDLE_SECONDS).result()
        share = (time.process_time() - cpu) / IDLE_SECONDS
    print(f"idle with {OPEN_PAGES} pages open: {share:.2%} of a processor, for {polls} requests")


def poll_open_pages(port: int, href: str, seconds: float) -> int:
    """Ask for news as often as open pages do, and return how many requests that were."""
    client, end, polls = SiteClient(port), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        assert client.page(href, hx_request="true")[0] == 204
        polls += 1
        time.sleep(POLL_SECONDS / OPEN_PAGES)
    return polls


def measure_memory() -> float:
    """Return the largest resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def time_call(work: Callable[[], object]) -> CallTime:
    """Return the seconds of a call."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return CallTime(time.perf_counter() - start, time.process_time() - cpu)


def format_times(times: list[CallTime]) -> str:
    """Format the median and the highest wall and CPU seconds."""
    return "; ".join(
        f"{name} {statistics.median(values):.3f} s (at most {max(values):.3f})"
        for name, values in zip(("wall", "CPU"), zip(*times, strict=True), strict=True)
    )


if __name__ == "__main__":
    main()
