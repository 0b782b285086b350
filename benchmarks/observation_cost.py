"""CPU and wall-clock time that observing adds to a step: torchrun ... -m benchmarks.observation_cost LOOP.

One observer is switched on and off in turns of some steps within one process, so that both see the same weather of a
shared machine. Its first laps, in which everything is measured, come before the turns.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.observed_loop import HandWrittenLoop, ScaledClassifier
from benchmarks.timing import read_rank, read_world_size
from benchmarks.training_case import LR, MOMENTUM, WORKLOADS, TrainingCase, get_examples
from equipoise import observe
from equipoise.observation.observer import Observer

WARMUP_STEPS = 300
TRIMMED_SHARE = 0.05  # of the turns at either end, which something else on the machine has held up


class TurnTiming(NamedTuple):
    """Seconds of a step in one turn."""

    is_observed: bool
    wall: float
    cpu: float


class ObserverSwitch:
    """Switches an observer on and off every so many steps, and times the turns between."""

    def __init__(self, turn_steps: int, set_observer: Callable[[Observer | None], None] = lambda _: None) -> None:
        """Create a switch; `set_observer` gives a callback of a trainer its observer, or takes it away."""
        self.turn_steps, self.set_observer = turn_steps, set_observer
        self.observer: Observer | None = None
        self.turns: list[TurnTiming] = []
        self.removed_hooks: list[tuple[dict[int, Any], int, Any]] = []
        self.steps = 0
        self.start = time.perf_counter(), time.process_time()

    def begin_step(self, observer: Observer | None) -> None:
        """Note that a step begins; at the end of a turn, switch."""
        self.observer = self.observer or observer
        steps = self.steps - WARMUP_STEPS
        self.steps += 1
        if steps < 0 or steps % self.turn_steps:
            return
        now, is_observed = (time.perf_counter(), time.process_time()), not self.removed_hooks
        if steps:
            wall, cpu = ((end - start) / self.turn_steps for end, start in zip(now, self.start, strict=True))
            self.turns.append(TurnTiming(is_observed, wall, cpu))
        self._switch_off() if is_observed else self._switch_on()
        self.start = time.perf_counter(), time.process_time()

    def _switch_off(self) -> None:
        assert self.observer
        self.observer.pause()
        self.set_observer(None)
        hooks = self.observer.hooks
        for handle in [*hooks.handles, *hooks.gradients.handles, *hooks.probe.handles, hooks.output_handle]:
            if handle and (functions := handle.hooks_dict_ref()) is not None:
                self.removed_hooks.append((functions, handle.id, functions.pop(handle.id)))

    def _switch_on(self) -> None:
        self.set_observer(self.observer)
        for functions, key, function in self.removed_hooks:
            functions[key] = function
        self.removed_hooks = []


def run_by_hand(case: TrainingCase, turns: int, folder: Path) -> ObserverSwitch:
    """Run a loop written by hand in turns."""
    loop, switch = HandWrittenLoop(case), ObserverSwitch(case.steps)
    with observe(loop.network, loop.optimizer, batch_size=case.batch, out=folder) as observer:
        for _ in range(WARMUP_STEPS + turns * case.steps + 1):
            switch.begin_step(observer)
            loop.take_steps(1)
    return switch


def run_lightning(case: TrainingCase, turns: int, folder: Path) -> ObserverSwitch:
    """Run Lightning's Trainer in turns."""
    import lightning

    from equipoise.callbacks.lightning import EquipoiseCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = ScaledClassifier(case.load_workload())

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            return self.network(*batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=LR, momentum=MOMENTUM)

    class Switch(lightning.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            switch.begin_step(callback.observer)

    callback = EquipoiseCallback(folder)
    switch = ObserverSwitch(case.steps, lambda observer: setattr(callback, "observer", observer))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=read_world_size(),
        strategy="ddp" if read_world_size() > 1 else "auto",
        max_epochs=-1,
        max_steps=WARMUP_STEPS + turns * case.steps + 1,
        callbacks=[Switch(), callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    examples = TensorDataset(*get_examples(case.load_workload()))
    trainer.fit(Module(), DataLoader(examples, batch_size=case.batch, shuffle=True, drop_last=True))
    return switch


def run_transformers(case: TrainingCase, turns: int, folder: Path) -> ObserverSwitch:
    """Run the Trainer of transformers in turns."""
    import transformers

    from equipoise.callbacks.transformers import EquipoiseCallback

    class Switch(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            switch.begin_step(callback.observer)

    callback = EquipoiseCallback(folder)
    switch = ObserverSwitch(case.steps, lambda observer: setattr(callback, "observer", observer))
    model = ScaledClassifier(case.load_workload())
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    images, labels = get_examples(case.load_workload())
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output_dir=output,
            use_cpu=True,
            per_device_train_batch_size=case.batch,
            max_steps=WARMUP_STEPS + turns * case.steps + 1,
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
            callbacks=[Switch(), callback],
        )
        trainer.train()
    return switch


RUNS = {"by-hand": run_by_hand, "lightning": run_lightning, "transformers": run_transformers}


def summarize_turns(turns: list[TurnTiming]) -> dict[str, float]:
    """Return what observing adds to a step, from turns and those before them; trimmed means, and standard errors."""
    pairs = [(one, two) if one.is_observed else (two, one) for one, two in zip(turns[::2], turns[1::2], strict=False)]
    figures = {"pairs": len(pairs), "step_ms": 1000 * statistics.median(plain.wall for _, plain in pairs)}
    for name in ("cpu", "wall"):
        added = sorted(getattr(observed, name) - getattr(plain, name) for observed, plain in pairs)
        cut = int(TRIMMED_SHARE * len(added))
        kept = added[cut : len(added) - cut]
        plain_seconds = statistics.median(getattr(plain, name) for _, plain in pairs)
        figures |= {
            f"{name}_added_us": 1e6 * statistics.mean(kept),
            f"{name}_error_us": 1e6 * statistics.stdev(kept) / len(kept) ** 0.5,
            f"{name}_added_percent": 100 * statistics.mean(kept) / plain_seconds,
        }
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Measure one loop, and print the figures of each worker as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop", choices=RUNS)
    parser.add_argument("--model", choices=WORKLOADS, default="lenet")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--turn-steps", type=int, default=50)
    parser.add_argument("--turns", type=int, default=400)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the frameworks' own code
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    case = TrainingCase(
        model=options.model, batch=options.batch_size, warmup_steps=WARMUP_STEPS, steps=options.turn_steps
    )
    with tempfile.TemporaryDirectory() as folder:
        switch = RUNS[options.loop](case, options.turns, Path(folder, "run"))
    figures: list[Any] = [None] * read_world_size()
    dist.all_gather_object(figures, summarize_turns(switch.turns))
    if read_rank() == 0:
        for rank, values in enumerate(figures):
            print(json.dumps({**vars(options), "rank": rank, **values}), flush=True)
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
