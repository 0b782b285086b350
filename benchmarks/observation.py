"""What observing a loop costs, and whether it finds what others find: torchrun ... -m benchmarks.observation.

Cost: blocks of steps with and without the observer, in pairs within one process, whose order changes from pair to pair.
Agreement: parts of a step beside marks placed by hand, and norms and parts beside those of our own loop.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.hand_written_loop import iterate_batches
from benchmarks.timing import StepClock, read_rank, read_world_size
from benchmarks.training_case import LR, MOMENTUM, WORKLOADS, TrainingCase, build_model, compute_scale, get_examples
from equipoise import observe
from equipoise.runs.record import Lap, mean_noise_scale
from equipoise.training.loop import Training

WARMUP_STEPS = 10
PARTS = ("data", "compute", "exchange")


class ScaledClassifier(nn.Module):
    """The benchmark's model from uint8 images to its loss, as trainers of other libraries take it."""

    def __init__(self, workload: Any) -> None:
        super().__init__()
        self.model, (self.gain, self.offset) = build_model(workload), compute_scale(workload)

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return loss and scores."""
        scores = self.model(inputs.float().mul_(self.gain).add_(self.offset))
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


class StepMarks(NamedTuple):
    """Moments of a step: its start, its batch is there, its last gradient, its backward pass returns, its end."""

    start: float
    loaded: float
    gradient: float
    backward: float
    end: float


class HandWrittenLoop:
    """Loop over tensors in memory, with DDP where there are several workers, and its own marks of time."""

    def __init__(self, case: TrainingCase) -> None:
        self.case, workload = case, case.load_workload()
        network: nn.Module = ScaledClassifier(workload)
        is_alone = read_world_size() == 1
        self.network = network if is_alone else DistributedDataParallel(network, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
        self.images, self.labels = get_examples(workload)
        self.batches = iterate_batches(len(self.labels), case.batch, torch.device("cpu"))
        self.marks: list[StepMarks] = []
        self.last_gradient = 0.0

    def load_batch(self) -> tuple[Tensor, Tensor]:
        """Return the next batch of this worker."""
        indices = next(self.batches)
        return self.images[indices], self.labels[indices]

    def take_steps(self, count: int) -> None:
        """Take steps, with a mark of time where a batch is there and where a step ends."""
        end = time.perf_counter()
        for _ in range(count):
            start = end
            inputs, labels = self.load_batch()
            self.optimizer.zero_grad()
            loaded = time.perf_counter()
            self.network(inputs, labels)["loss"].backward()
            backward = time.perf_counter()
            self.optimizer.step()
            end = time.perf_counter()
            self.marks.append(StepMarks(start, loaded, self.last_gradient, backward, end))

    def mark_gradient(self, _: Tensor) -> None:
        """Note when the latest gradient of this worker was computed."""
        self.last_gradient = time.perf_counter()

    def run_block(self, folder: Path | None) -> tuple[float, float]:
        """Return wall-clock and CPU seconds of a step, observed if there is a folder."""
        options = {"batch_size": self.case.batch, "name": self.case.model}
        observer = observe(self.network, self.optimizer, out=folder, **options) if folder else nullcontext()
        with observer:
            self.take_steps(WARMUP_STEPS)
            start = time.perf_counter(), time.process_time()
            self.take_steps(self.case.steps)
            end = time.perf_counter(), time.process_time()
        return (end[0] - start[0]) / self.case.steps, (end[1] - start[1]) / self.case.steps


def run_lightning_block(case: TrainingCase, folder: Path | None) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a step of Lightning's Trainer, observed if there is a folder."""
    import lightning

    from equipoise.callbacks.lightning import EquipoiseCallback

    clock = StepClock(case)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = ScaledClassifier(case.load_workload())

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            return self.network(*batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            optimizer = torch.optim.SGD(self.parameters(), lr=LR, momentum=MOMENTUM)
            clock.attach_to(optimizer)
            return optimizer

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=read_world_size(),
        strategy="ddp" if read_world_size() > 1 else "auto",
        max_epochs=-1,
        max_steps=case.all_steps,
        callbacks=[EquipoiseCallback(folder)] if folder else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    examples = TensorDataset(*get_examples(case.load_workload()))
    trainer.fit(Module(), DataLoader(examples, batch_size=case.batch, shuffle=True, drop_last=True))
    return read_step_seconds(clock)


def run_transformers_block(case: TrainingCase, folder: Path | None) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a step of the Trainer of transformers, observed if there is a folder."""
    import transformers

    from equipoise.callbacks.transformers import EquipoiseCallback

    clock, model = StepClock(case), ScaledClassifier(case.load_workload())
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    clock.attach_to(optimizer)
    images, labels = get_examples(case.load_workload())
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output_dir=output,
            use_cpu=True,
            per_device_train_batch_size=case.batch,
            max_steps=case.all_steps,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_drop_last=True,
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=[{"inputs": i, "labels": label} for i, label in zip(images, labels, strict=True)],
            optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)),
            callbacks=[EquipoiseCallback(folder)] if folder else [],
        )
        trainer.train()
    return read_step_seconds(clock)


def read_step_seconds(clock: StepClock) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a step."""
    wall, cpu = (end - start for start, end in zip(clock.start, clock.end, strict=True))
    return wall / clock.case.steps, cpu / clock.case.steps


def measure_cost(run_block: Callable[[Path | None], tuple[float, float]], pairs: int) -> dict[str, Any]:
    """Return what observing adds to a step in CPU and wall-clock time, from pairs of blocks in changing order."""
    plain, observed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            for is_observed in (False, True) if pair % 2 else (True, False):
                seconds = run_block(Path(folder, str(pair)) if is_observed else None)
                (observed if is_observed else plain).append(seconds)
    figures: dict[str, Any] = {"step_ms": 1000 * statistics.median(wall for wall, _ in plain)}
    for clock, name in enumerate(("wall", "cpu")):
        pairs_of_seconds = [(without[clock], watched[clock]) for without, watched in zip(plain, observed, strict=True)]
        percents = [100 * (watched / without - 1) for without, watched in pairs_of_seconds]
        added = [1e6 * (watched - without) for without, watched in pairs_of_seconds]
        figures |= {f"{name}_added_percent": summarize_values(percents), f"{name}_added_us": summarize_values(added)}
    return figures


def summarize_values(values: list[float]) -> dict[str, list[float]]:
    """Return the median with its 95 % interval by order statistics, and the first and third quartile."""
    ordered, margin = sorted(values), 1.96 * len(values) ** 0.5 / 2
    low, high = (min(max(round(len(values) / 2 + sign * margin), 0), len(values) - 1) for sign in (-1, 1))
    first, median, third = statistics.quantiles(values, n=4)
    return {
        "median": [round(value, 2) for value in (median, ordered[low], ordered[high])],
        "quartiles": [round(first, 2), round(third, 2)],
    }


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
    parser.add_argument("what", choices=["ddp", "lightning", "transformers", "marks", "own-loop"])
    parser.add_argument("--model", choices=WORKLOADS, default="lenet")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=8)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the frameworks' own code
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    case = TrainingCase(model=options.model, batch=options.batch_size, warmup_steps=WARMUP_STEPS, steps=options.steps)
    measure: dict[str, Callable[[], dict[str, Any]]] = {
        "ddp": lambda: measure_cost(HandWrittenLoop(case).run_block, options.pairs),
        "lightning": lambda: measure_cost(lambda folder: run_lightning_block(case, folder), options.pairs),
        "transformers": lambda: measure_cost(lambda folder: run_transformers_block(case, folder), options.pairs),
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
