"""A replica of a detector, in a process without Ray: python -m benchmarks.servers.detector_replica PORT.

API key, limits, drift and captures are on, as in a replica. The drift monitor is in the same process.
"""

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.serving import API_KEY
from tests.support.detector_service import start_detector_service


def main() -> None:
    """Serve the bundle in BENCH_BUNDLE until the process is ended."""
    torch.set_num_threads(1)
    with (
        TemporaryDirectory() as folder,
        start_detector_service(
            Path(os.environ["BENCH_BUNDLE"]),
            Path(folder),
            api_keys=(API_KEY,),
            port=int(sys.argv[1]),
            captures_all=False,
        ) as service,
    ):
        asyncio.run(service.observer.report_every_tick())


if __name__ == "__main__":
    main()
