"""What every contestant trains, on which data, and for how many steps."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.workloads import ImageWorkload, load_workload

LR, MOMENTUM, SEED = 0.01, 0.9, 0
WORKLOADS = {"lenet": "digits", "resnet18": "benchmarks.cifar_like:build_cifar_like_workload"}
WARMUP_STEPS = {"lenet": 100, "resnet18": 4}
STEPS = {"lenet": 1000, "resnet18": 100}


@dataclass(frozen=True, kw_only=True)
class TrainingCase:
    """A model, the examples per worker and step, and the steps before and within the timing."""

    model: str
    batch: int
    warmup_steps: int
    steps: int

    @property
    def all_steps(self) -> int:
        """Return the number of steps that a contestant takes."""
        return self.warmup_steps + self.steps

    def build_config(self, workers: int) -> TrainConfig:
        """Build the config of this case for Equipoise: no augmentation, ended by the cap of examples alone."""
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
            # at least one measurement of the noise scale is timed
            noise_scale_every=min(TrainConfig.noise_scale_every, self.steps),
        )

    def load_workload(self) -> ImageWorkload:
        """Load the data and the model that all contestants share."""
        return load_workload(self.build_config(workers=1))


def build_model(workload: ImageWorkload) -> nn.Module:
    """Build the workload's model with the weights of the seed, in training mode."""
    torch.manual_seed(SEED)
    return workload.model().train()


def get_examples(workload: ImageWorkload) -> tuple[Tensor, Tensor]:
    """Return the training images, as uint8 in memory, and their labels."""
    images = workload.train.inputs
    assert isinstance(images, Tensor)
    return images, workload.train.targets


def compute_scale(workload: ImageWorkload) -> tuple[Tensor, Tensor]:
    """Return the gain and offset that turn uint8 images into (uint8 / 255 - mean) / std."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (workload.mean, workload.std))
    return 1 / (255 * std), -mean / std


def build_case_parser(description: str | None) -> ArgumentParser:
    """Build the parser of the arguments that every contestant takes."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--model", choices=WORKLOADS, default="lenet")
    parser.add_argument("--batch-size", type=int, default=32, help="examples per worker and step")
    parser.add_argument("--warmup-steps", type=int, help="steps before the timing, at least 1")
    parser.add_argument("--steps", type=int, help="steps timed")
    return parser


def build_case(arguments: Namespace, model: str) -> TrainingCase:
    """Build the case of a model from the arguments; step counts that are not given default to those of the model."""
    return TrainingCase(
        model=model,
        batch=arguments.batch_size,
        warmup_steps=arguments.warmup_steps or WARMUP_STEPS[model],
        steps=arguments.steps or STEPS[model],
    )


def parse_case(description: str | None) -> TrainingCase:
    """Parse the case from the command line of a contestant that takes no other arguments."""
    arguments = build_case_parser(description).parse_args()
    return build_case(arguments, arguments.model)
