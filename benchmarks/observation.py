"""Whether an observed loop shows what others find: torchrun ... -m benchmarks.observation.

Parts of a step beside marks placed by hand, and norms and parts beside those of our own loop.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.observed_loop import HandWrittenLoop
from benchmarks.timing import read_rank, read_world_size
from benchmarks.training_case import LR, MOMENTUM, WORKLOADS, TrainingCase
from equipoise import observe
from equipoise.runs.record import Lap, mean_noise_scale
from equipoise.training.loop import Training

WARMUP_STEPS = 10
PARTS = ("data", "compute", "exchange")


def compare_with_marks(case: TrainingCase) -> dict[str, float]:
    """Return milliseconds of a step and its parts by the observer and by marks placed by hand, in the same steps."""
    loop = HandWrittenLoop(case)
    for parameter in loop.network.parameters():
        parameter.register_post_accumulate_grad_hook(loop.mark_gradient)
    loop.take_steps(WARMUP_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        observer = observe(loop.network, loop.optimizer, batch_size=case.batch, out=Path(folder, "run"))
        loop.marks.clear()
        loop.take_steps(case.steps)
        observer.close()
    marks = loop.marks
    by_hand = torch.tensor(
        [
            sum(mark.loaded - mark.start for mark in marks[1:]),  # the first wait for data is not observed
            sum(mark.backward - mark.gradient for mark in marks) if read_world_size() > 1 else 0.0,
            sum(mark.end - mark.start for mark in marks) - (marks[0].loaded - marks[0].start),
        ],
        dtype=torch.float64,
    )
    dist.all_reduce(by_hand, dist.ReduceOp.MAX)  # of the slowest worker, as in a lap
    results = {}
    for name, expected in zip(("data_seconds", "exchange_seconds", "seconds"), by_hand.tolist(), strict=True):
        observed = sum(getattr(lap, name) for lap in observer.laps)
        part = name.replace("_seconds", "").replace("seconds", "step")
        results |= {f"{part}_ms": 1000 * observed / case.steps, f"{part}_ms_by_hand": 1000 * expected / case.steps}
    return results


def compare_with_own_loop(case: TrainingCase) -> dict[str, float]:
    """Return the observer's figures on DDP beside those of our own loop, with the same weights and batches."""
    training = Training(case.build_config(read_world_size()))
    with tempfile.TemporaryDirectory() as folder:
        own = list(training.laps())
        training = Training(case.build_config(read_world_size()))
        model = DistributedDataParallel(training.model, forward_sync_buffers=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
        batches: Iterator[Any] = training.loader.train_batches(training.micro_indices, 0)
        options = {"batch_size": case.batch, "out": Path(folder, "run"), "noise_scale_every": 1}
        with observe(model, optimizer, **options) as observer:
            for _ in range(case.all_steps):
                images, labels = next(batches)
                training.workload.loss(model(images), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
    return {
        "noise_scale": (mean_noise_scale(observer.laps) or 0) / (mean_noise_scale(own) or 1),
        "noise_scale_examples": mean_noise_scale(own) or 0,
        **{f"{part}_ms_own": 1000 * mean_part(own, part) for part in PARTS},
        **{f"{part}_ms_ddp": 1000 * mean_part(observer.laps, part) for part in PARTS},
    }


def mean_part(laps: list[Lap], part: str) -> float:
    """Return the seconds of a step that a part takes, without the first lap."""
    return sum(getattr(lap, f"{part}_seconds") for lap in laps[1:]) / sum(lap.steps for lap in laps[1:])


def main() -> None:
    """Measure what was asked for, and print it on the first worker as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["marks", "own-loop"])
    parser.add_argument("--model", choices=WORKLOADS, default="lenet")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the frameworks' own code
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    case = TrainingCase(model=options.model, batch=options.batch_size, warmup_steps=WARMUP_STEPS, steps=options.steps)
    measure: dict[str, Callable[[], dict[str, Any]]] = {
        "marks": lambda: compare_with_marks(case),
        "own-loop": lambda: compare_with_own_loop(case),
    }
    if options.what == "own-loop" and read_world_size() < 2:
        parser.error("own-loop compares the gradients of several workers: start two")
    result = measure[options.what]()
    if read_rank() == 0:
        print(json.dumps({**vars(options), "workers": read_world_size(), **result}), flush=True)
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
