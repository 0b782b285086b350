"""Time sums of tensors by every all-reduce algorithm on the workers of a cluster, and the links that they travel on.

Shows which algorithm is the fastest for tensors of which size. Writes links.csv, which `equipoise plan --algorithms`
takes, links.json with the levels of the network too, and the page links.html to --out; the same command measures again
and replaces them.

Exit status: 0 the files were written; 1 a worker failed, or the object store did not answer; 2 wrong options or files;
143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from dashboards.links_page import build_links_page, describe_fastest_ranges, describe_links
from dashboards.page import write_page
from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number, pluralize
from equipoise.planning.exchanges.link_report import LINK_REPORT_FILE, LINKS_FILE, LinkReport
from equipoise.storage.atomic import write_json
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import PathOrUrl, validate_locations
from jobs.cluster.resources import connect_to_cluster, describe_cluster, require_slots, set_worker_group_timeout
from jobs.timing.link_timing import LinkWorkerConfig, time_links
from jobs.timing.measurement_output import open_measurement_output, require_measurement_output
from jobs.timing.timing_tables import write_csv

UNIT_BYTES = {"": 1, "b": 1, "kb": 10**3, "kib": 1 << 10, "mb": 10**6, "mib": 1 << 20, "gb": 10**9, "gib": 1 << 30}
ELEMENT_BYTES = 4  # of the fp32 numbers that are summed
MIN_SIZE, MAX_SIZE = ELEMENT_BYTES, 16 << 30
MAX_SECONDS = 86_400.0
LINKS_PAGE_FILE = "links.html"


@dataclass(frozen=True, kw_only=True)
class LinksOptions:
    __doc__ = __doc__

    workers: int
    """number of workers, each with a CPU, and a GPU where the cluster has some"""
    out: PathOrUrl
    """folder or URL for links.csv, links.json and links.html"""
    sizes: tuple[str, ...] = ("64KiB", "1MiB", "16MiB")
    """sizes of the tensors that are summed, such as 64KiB 1MiB; the largest at least 8 times the smallest for closed
    forms"""
    seconds: float = 30.0
    """time for all measurements, unless three turns of each algorithm and size take longer"""

    def validate(self) -> None:
        """Refuse options out of range."""
        if self.workers < 2:
            raise EquipoiseError(
                "option-range",
                f"cannot time sums over {pluralize(self.workers, 'worker')}: it takes at least two",
                "give --workers 2 or more",
            )
        if not self.sizes:
            raise EquipoiseError("option-missing", "--sizes needs a value", "give sizes such as 64KiB 1MiB 16MiB")
        if not 0 < self.seconds <= MAX_SECONDS:
            raise EquipoiseError(
                "option-range", f"--seconds must be above 0 and at most {MAX_SECONDS:,.0f}, got {self.seconds:g}"
            )

    @property
    def size_bytes(self) -> list[int]:
        """Sizes in bytes, the smallest first."""
        return sorted({parse_size(text) for text in self.sizes})


def parse_size(text: str) -> int:
    """Parse the size of a tensor, such as 64KiB or 65536, and return it in bytes, in whole numbers of fp32."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmg]i?b|b|)", text.strip().lower())
    if match is None:
        raise EquipoiseError(
            "option-format",
            f"cannot parse the size {text[:40]!r} of --sizes",
            "give bytes such as 64KiB, 1MiB or 65536",
        )
    size = round(float(match[1]) * UNIT_BYTES[match[2]])
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise EquipoiseError("option-range", f"--sizes must be from {MIN_SIZE} bytes to 16GiB, got {text.strip()[:40]}")
    return size - size % ELEMENT_BYTES


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(LinksOptions)
    options.validate()
    sizes = options.size_bytes
    validate_locations(options.out)
    out = require_measurement_output(options.out, "link measurement", (LINKS_FILE, LINK_REPORT_FILE, LINKS_PAGE_FILE))
    connect_to_cluster()
    gpu = require_link_slots(options.workers)
    set_worker_group_timeout(elastic=False)
    with open_measurement_output(out) as ray_folder:
        report = time_links_on_cluster(options, sizes, ray_folder, gpu)
        write_csv(report.to_table(), out / LINKS_FILE)
        write_json(out / LINK_REPORT_FILE, report.to_json())
        write_page(build_links_page(report), out / LINKS_PAGE_FILE)
    print("\n".join([*describe_links(report.links), *describe_fastest_ranges(report)]).replace("`", ""))
    print(f"wrote {options.out / LINKS_FILE} and {options.out / LINKS_PAGE_FILE}")
    return 0


def require_link_slots(workers: int) -> bool:
    """Return whether workers get GPUs; refuse more workers than the cluster can hold."""
    try:
        return require_slots(workers, 1)[1]
    except EquipoiseError as error:
        raise EquipoiseError(error.code, error.problem, "choose fewer --workers, or add nodes") from error


def time_links_on_cluster(options: LinksOptions, sizes: list[int], ray_folder: Path, gpu: bool) -> LinkReport:
    """Time sums on the workers of the cluster."""
    print(
        f"{describe_cluster()}: timing sums of {pluralize(len(sizes), 'size')} over {options.workers} workers,"
        f" for about {format_number(options.seconds)} s once they are up",
        flush=True,
    )
    return time_links(LinkWorkerConfig(workers=options.workers, sizes=sizes, seconds=options.seconds), ray_folder, gpu)


if __name__ == "__main__":
    sys.exit(main())
