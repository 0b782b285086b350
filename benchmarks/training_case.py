"""What every contestant trains, on what, and for how long."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.workloads import Workload, load_workload

LR, MOMENTUM, SEED = 0.01, 0.9, 0
WORKLOADS = {"lenet": "digits", "resnet18": "benchmarks.cifar_like:workload"}
WARMUP_STEPS = {"lenet": 100, "resnet18": 4}
STEPS = {"lenet": 1000, "resnet18": 100}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, the examples of one worker's step, and the steps before and within the timing."""

    model: str
    batch: int
    warmup_steps: int
    steps: int

    @property
    def all_steps(self) -> int:
        """Steps that a contestant takes."""
        return self.warmup_steps + self.steps

    def trial(self, workers: int) -> TrainConfig:
        """The case as our loop is asked for it: no augmentation, and the end comes by the cap alone."""
        cap = self.all_steps * self.batch * workers
        return TrainConfig(
            workload=WORKLOADS[self.model],
            model=self.model,
            workers=workers,
            batch_size=self.batch,
            lr=LR,
            momentum=MOMENTUM,
            seed=SEED,
            warmup=0,
            augment=False,
            target=2.0,
            max_examples=cap,
            eval_every=cap,
            noise_scale_every=min(
                TrainConfig.noise_scale_every, self.steps
            ),  # at least one look at the noise scale is timed
        )

    def workload(self) -> Workload:
        """The data and the model that all contestants share."""
        return load_workload(self.trial(workers=1))


def model(made: Workload) -> nn.Module:
    """The workload's model with the weights of the seed, in training mode."""
    torch.manual_seed(SEED)
    return made.model().train()


def examples(made: Workload) -> tuple[Tensor, Tensor]:
    """The training pictures, uint8, and their labels: all in memory."""
    pictures = made.train.pictures
    assert isinstance(pictures, Tensor)
    return pictures, made.train.labels


def scale(made: Workload) -> tuple[Tensor, Tensor]:
    """Gain and offset that bring uint8 pictures to (uint8 / 255 - mean) / std."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (made.mean, made.std))
    return 1 / (255 * std), -mean / std


def parser(description: str | None) -> ArgumentParser:
    """The arguments that every contestant takes."""
    arguments = ArgumentParser(description=description)
    arguments.add_argument("--model", choices=WORKLOADS, default="lenet")
    arguments.add_argument("--batch-size", type=int, default=32, help="examples per worker and step")
    arguments.add_argument("--warmup-steps", type=int, help="steps before the timing, at least 1")
    arguments.add_argument("--steps", type=int, help="steps timed")
    return arguments


def case(given: Namespace, model: str) -> Case:
    """The case of `model` that the arguments ask for; steps not given are the model's own."""
    return Case(
        model=model,
        batch=given.batch_size,
        warmup_steps=given.warmup_steps or WARMUP_STEPS[model],
        steps=given.steps or STEPS[model],
    )


def asked(description: str | None) -> Case:
    """The case on the command line of a contestant that takes nothing else."""
    given = parser(description).parse_args()
    return case(given, given.model)
