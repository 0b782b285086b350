"""Run a function in real worker processes that form a gloo process group."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "numpy", "pytest", "equipoise.training.loop"])


def run_with_gloo(workers: int, folder: Path, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call `function(*args)` in each of `workers` processes and return the results by rank."""
    rendezvous = folder / f"rendezvous-{uuid4().hex}"
    with ProcessPoolExecutor(workers, mp_context=_context) as pool:
        futures = [pool.submit(_run_rank, rank, workers, rendezvous, function, args) for rank in range(workers)]
        return [future.result(timeout=240) for future in futures]


def _run_rank(rank: int, workers: int, rendezvous: Path, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    torch.set_num_threads(1)
    if workers == 1:
        return function(*args)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=workers)
    try:
        result = function(*args)
        if dist.is_initialized():
            dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
        return result
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
