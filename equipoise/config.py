"""Every option of a training run."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

OptimizerName = Literal["sgd", "adamw"]
ScheduleName = Literal["constant", "cosine", "one-cycle"]
Precision = Literal["fp32", "bf16", "fp64"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Options of a training run. Two runs with equal options are the same experiment."""

    workload: str
    """digits, fashion-mnist, cifar10, folder, vending, vending-source, or module:attribute of your own"""
    model: str | None = None
    """lenet or any torchvision classifier (resnet18, ...); the workload's own if not given"""
    data: str = "data"
    """folder that holds the data set, or receives it"""
    image_size: int | None = None
    """pixels a side that pictures are brought to; the workload's own if not given"""
    init_from: str | None = None
    """start from what another model has learned: a bundle, a run, or torchvision for its published weights"""
    reuse_head: bool = True
    """take over the classifier's rows of classes that the other model knows by name"""
    freeze_stages: int = 0
    """stages at the bottom of the model that learn nothing more"""
    body_lr_scale: float | None = None
    """learning rate of all but the classifier, as a fraction of --lr; 0.1 with --init-from, else 1"""
    workers: int = 1
    """processes that share every global batch"""
    batch_size: int = 32
    """examples per worker and micro-step"""
    grad_accumulation: int = 1
    """micro-steps summed before gradients are exchanged"""
    lr: float = 0.05
    """learning rate after warm-up"""
    seed: int = 0
    """of the first weights, the order of examples, augmentation and dropout"""
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    """of SGD; AdamW keeps its usual betas"""
    weight_decay: float = 0.0
    schedule: ScheduleName = "constant"
    """of the learning rate after warm-up"""
    warmup: float = 1.0
    """passes over the training split in which the learning rate rises from 0"""
    precision: Precision = "fp32"
    """bf16 is autocast: weights and sums stay fp32"""
    compile: bool = False
    """compile the model (torch.compile)"""
    channels_last: bool = False
    """lay pictures out with the channels last"""
    augment: bool = True
    """vary the training pictures as the workload says"""
    threads: int = 1
    """CPU threads of one worker"""
    target: float | None = None
    """stop when the validation metric crosses this; the workload's own if not given"""
    max_examples: int | None = None
    """stop after this many examples; 50 passes if not given"""
    eval_every: int | None = None
    """examples between evaluations; a quarter of a pass if not given"""
    noise_scale_every: int = 100
    """steps between two looks at the noise scale on one worker, which cost a step each; 0 is never"""

    def __post_init__(self) -> None:
        for name in (
            "workers",
            "batch_size",
            "grad_accumulation",
            "threads",
            "image_size",
            "max_examples",
            "eval_every",
        ):
            self._require_at_least(name, minimum=1)
        for name in (
            "seed",
            "noise_scale_every",
            "momentum",
            "weight_decay",
            "warmup",
            "lr",
            "freeze_stages",
            "body_lr_scale",
        ):
            self._require_at_least(name, minimum=0)
        for name, choices in (("optimizer", OptimizerName), ("schedule", ScheduleName), ("precision", Precision)):
            if (value := getattr(self, name)) not in get_args(choices):
                raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")

        if self.target is not None and not math.isfinite(self.target):
            raise ValueError(f"target must be a finite number, got {self.target}")
        if self.seed >= 1 << 63:
            raise ValueError(f"seed must be below 2**63, got {self.seed}")

    def _require_at_least(self, name: str, minimum: int) -> None:
        value = getattr(self, name)
        if value is not None and not minimum <= value < math.inf:
            raise ValueError(f"{name} must be a finite number of at least {minimum}, got {value}")

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches in a global batch; each has a place, whichever worker computes it."""
        return self.workers * self.grad_accumulation

    @property
    def global_batch(self) -> int:
        """Examples that one optimizer step averages over."""
        return self.num_micro_batches * self.batch_size
