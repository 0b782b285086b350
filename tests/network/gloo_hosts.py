"""Run a function in a gloo process group with one worker on each simulated host.

A worker is started by `python -m tests.network.gloo_hosts RANK WORKERS MODULE:FUNCTION ARGUMENTS`, with the arguments
as a list of JSON, and prints what the function returns.
"""

import importlib
import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.network.hosts import Host
from tests.support.ray_cluster import ROOT

PORT = 29_500


def run_on_hosts(hosts: list[Host], function: str, *arguments: Any, timeout: float = 600) -> list[Any]:
    """Call `module:function` in a worker on each host, and return the results by rank.

    A host that is named several times has as many workers.
    """
    processes = [
        subprocess.Popen(
            host.build_command(
                *(sys.executable, "-m", "tests.network.gloo_hosts"),
                *(str(rank), str(len(hosts)), function, json.dumps(arguments)),
            ),
            env=os.environ | build_environment(hosts, rank),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(hosts)
    ]
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(errors[-2000:])
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


def build_environment(hosts: list[Host], rank: int) -> dict[str, str]:
    """Return what a worker needs to find the others, and to tell its host from theirs."""
    return {
        "MASTER_ADDR": hosts[0].address,
        "GLOO_SOCKET_IFNAME": "eth0",  # gloo does not find the right network interface by itself
        "NODE_RANK": str(hosts.index(hosts[rank])),
        "OMP_NUM_THREADS": "1",
    }


def main() -> None:
    """Join the process group, call the function and print its result."""
    rank, workers, name, arguments = sys.argv[1:]
    torch.set_num_threads(1)
    url = f"tcp://{os.environ['MASTER_ADDR']}:{PORT}"
    dist.init_process_group(
        "gloo", init_method=url, rank=int(rank), world_size=int(workers), timeout=timedelta(minutes=5)
    )
    module, _, function = name.partition(":")
    result = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
