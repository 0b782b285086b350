"""Options of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeAlias, TypeVar

from equipoise.command_template import find_program_name, split_command
from equipoise.errors import EquipoiseError
from equipoise.registries.all_reduce_registry import AllReduceName, require_runnable_algorithm
from equipoise.registries.exchange_registry import (
    CompressionMethod,
    SyncMethod,
    parse_compression,
    parse_sync,
    require_compatible,
    require_runnable_servers,
)
from equipoise.registries.optimizer_registry import OPTIMIZERS
from equipoise.registries.option_groups import COMMAND_OPTIONS, OPTION_DEFAULTS, SHARED_OPTIONS
from equipoise.registries.option_ranges import require_choices, require_ranges
from equipoise.registries.recipe_registry import (
    DEFAULT_BASE_BATCH,
    BatchGrowth,
    ScalingRule,
    parse_growth,
    require_runnable_growth,
    require_scaling_rule,
    require_synchronous_average,
    scale_lr,
)
from equipoise.registries.sharding_registry import (
    PipelineSchedule,
    ShardingMethod,
    parse_sharding,
    require_runnable_sharding,
)

Value = TypeVar("Value")
if TYPE_CHECKING:
    OptimizerName = str
    WorkloadDefault: TypeAlias = Annotated[Value, "None until `with_defaults` fills it in"]
else:
    OptimizerName = Literal[tuple(OPTIMIZERS)]  # the choices in --help
    WorkloadDefault = Optional
FROM_WORKLOAD: Any = None
ScheduleName = Literal["constant", "cosine", "one-cycle"]
Precision = Literal["fp32", "bf16", "fp64"]
KeptWeights = Literal["last", "best"]
DecayedWeights = Literal["all", "matrices"]
CHOICES = {
    "all_reduce": AllReduceName,
    "optimizer": OptimizerName,
    "decay_on": DecayedWeights,
    "schedule": ScheduleName,
    "precision": Precision,
    "keep": KeptWeights,
    "pipeline_schedule": PipelineSchedule,
    "scaling_rule": ScalingRule,
}
"""types of the options that are one of several names"""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Options of a training run. Two runs with equal options are the same experiment."""

    workload: str | None = None
    """what to learn: digits, fashion-mnist, cifar10, folder, boxes, shelf, table, text, vending, vending-source, or
    your own module:attribute"""
    command: str | None = None
    """your own training program instead of a workload, such as "python train.py --batch-size {batch_size} --lr {lr}";
    {seed}, {workers} and {out} are filled in too"""
    metric_pattern: str | None = None
    """regular expression whose first group is the metric in a line that --command prints, such as "val_loss=(\\S+)"; by
    default the command reports with equipoise.report or as JSON lines"""
    examples_pattern: str | None = None
    """regular expression whose first group is the number of examples seen so far, in the same line or one before"""
    model: str | None = None
    """model to train: lenet or any torchvision classifier (resnet18, ...), for boxes center:2x64 or one of torchvision,
    for text gpt:4x128 or hf:llama:4x128; by default the workload's own"""
    data: str = "data"
    """folder or URL of the data set, or folder that it is downloaded to; tables and texts may be a single file"""
    label: str | None = None
    """column of a table to predict"""
    image_size: int | None = None
    """side in pixels that images are resized to; by default the workload's own size"""
    init_from: str | None = None
    """initial weights to fine-tune: a bundle, a run, torchvision for its published weights, or for text a folder that
    transformers has saved"""
    reuse_head: bool = True
    """copy the classifier's weights of classes that the --init-from model has under the same name"""
    freeze_stages: int = 0
    """number of stages at the bottom of the model to freeze"""
    lora_rank: int | None = None
    """rank of the adapters (LoRA) that learn beside the frozen --init-from weights of a language model; needs peft"""
    body_lr_scale: float | None = None
    """learning rate of all layers but the classifier, as a fraction of --lr; by default 0.1 with --init-from, else 1"""
    workers: int = 1
    """number of worker processes that share each global batch"""
    batch_size: int = 32
    """examples per worker and micro-step"""
    grad_accumulation: int = 1
    """micro-steps whose gradients are accumulated before they are exchanged"""
    all_reduce: AllReduceName = "backend"
    """algorithm that sums gradients over workers: backend for that of torch's process group, auto to time all when the
    run starts and take the fastest for each bucket of gradients"""
    sync: str = "step"
    """when workers exchange: step for the gradient in every step, local:H for weights that are averaged every H steps,
    diloco:H for an outer step with momentum along their average, server for gradients that are pushed to servers, which
    update the weights, async:S for servers that wait for no worker, with gradients at most S updates old"""
    servers: int = 0
    """number of servers of --sync server and async, each on a worker and with a part of the weights; 0 for one on each
    worker"""
    outer_lr: float = 0.7
    """learning rate of the outer step of diloco, above 0 and up to 10; 1 with an --outer-momentum of 0 is local"""
    outer_momentum: float = 0.9
    """Nesterov momentum of the outer step of diloco"""
    sharding: str = "none"
    """what each worker holds of the model: none for all of it, optimizer for a part of the optimizer's state, full for
    a part of the weights too (full:K in groups of K workers), tensor:K for a part of each layer, pipeline:K for some of
    the layers"""
    pipeline_schedule: PipelineSchedule = "1f1b"
    """order of a pipeline's work: 1f1b runs each backward pass as soon as it can, gpipe all forward passes first"""
    recompute: bool = False
    """keep only the inputs of each block of layers for the backward pass, which computes the block again"""
    compression: str = "none"
    """what workers send: none for all of it, bf16, int8, powersgd:RANK for matrices as products of two of this rank, or
    topk:SHARE for this share of the numbers, the largest"""
    error_feedback: bool = True
    """keep what --compression left out, and add it to what is sent next"""
    lr: WorkloadDefault[float] = FROM_WORKLOAD
    """learning rate after warm-up; by default 0.05, or the workload's own"""
    scaling_rule: ScalingRule = "none"
    """how the learning rate follows the global batch: linear takes --lr times its ratio to --base-batch, sqrt times the
    root of the ratio"""
    base_batch: int = DEFAULT_BASE_BATCH
    """global batch that --lr is meant for, with --scaling-rule"""
    seed: int = 0
    """seed of the initial weights, the order of examples, augmentation and dropout"""
    optimizer: WorkloadDefault[OptimizerName] = FROM_WORKLOAD
    """optimizer; by default sgd, or the workload's own"""
    momentum: float = 0.9
    """momentum of SGD and LARS"""
    trust: float = 0.001
    """ratio of a step of LARS to the norm of the weights of a layer, before it is multiplied by --lr"""
    beta2: WorkloadDefault[float] = FROM_WORKLOAD
    """decay of the mean squared gradient of AdamW and LAMB; by default 0.999, or the workload's own"""
    epsilon: float = 1e-8
    """what AdamW and LAMB add to the root of the mean squared gradient"""
    weight_decay: WorkloadDefault[float] = FROM_WORKLOAD
    """weight decay of the optimizer; by default 0, or the workload's own"""
    decay_on: WorkloadDefault[DecayedWeights] = FROM_WORKLOAD
    """weights that decay: all, or only matrices (those of two or more dimensions, not biases and norms)"""
    clip_norm: WorkloadDefault[float] = FROM_WORKLOAD
    """largest norm of the gradient of a step, to which a larger one is scaled down; by default 0, for no limit, or the
    workload's own"""
    schedule: WorkloadDefault[ScheduleName] = FROM_WORKLOAD
    """schedule of the learning rate after warm-up; by default constant, or the workload's own"""
    warmup: WorkloadDefault[float] = FROM_WORKLOAD
    """epochs over which the learning rate rises from 0 to --lr; by default 1, or the workload's own"""
    warmup_examples: int | None = None
    """examples over which the learning rate rises, in place of --warmup"""
    label_smoothing: float = 0.0
    """share of each label that is spread evenly over all classes in the loss of training"""
    mixup: float = 0.0
    """train on blends of two images (or rows) and labels, with a share drawn from Beta(MIXUP, MIXUP); 0 for none"""
    average_weights: float = 0.0
    """decay per step of a moving average of the weights, which is evaluated and kept as the model; 0 for none"""
    grow_batch: str = "none"
    """how the global batch grows in a run, at the same learning rate: FACTOR@EXAMPLES multiplies the accumulation after
    this number of examples, such as 2@20000,4@60000; auto doubles it where the noise scale is larger; or none"""
    precision: Precision = "fp32"
    """number format of training; bf16 is autocast: weights and sums stay in fp32"""
    compile: bool = False
    """compile the model with torch.compile"""
    channels_last: bool = False
    """store images in channels-last memory format"""
    augment: bool = True
    """apply the workload's augmentation to training images"""
    threads: int = 1
    """CPU threads per worker"""
    target: float | None = None
    """validation metric at which training stops; by default the workload's own target"""
    lower_is_better: bool = False
    """lower values of the metric are better, as with a loss; a workload of your own sets this itself"""
    max_examples: int | None = None
    """number of examples after which training stops; by default 50 epochs"""
    eval_every: int | None = None
    """examples between evaluations; by default a quarter of an epoch"""
    keep: KeptWeights = "last"
    """weights that become the model: the last ones, or those of the evaluation with the best metric"""
    patience: int | None = None
    """evaluations in a row without a better metric after which training stops; by default it does not"""
    watts: float | None = None
    """power in watts that each worker is assumed to draw, for machines without energy counters that you may read"""
    noise_scale_every: int = 100
    """steps between measurements of the noise scale on a single worker; each takes as long as a step; 0 for never"""

    def __post_init__(self) -> None:
        require_ranges(self)
        require_choices(self, CHOICES, OPTION_DEFAULTS)
        require_runnable_algorithm(self.all_reduce, self.workers)
        require_compatible(self.sync_method, self.compression_method, self.all_reduce)
        require_runnable_servers(self.sync_method, self.servers, self._max_workers)
        require_runnable_sharding(
            self.sharding_method, self._max_workers, self.sync, self.compression, self.all_reduce, self.optimizer
        )
        require_runnable_growth(
            self.batch_growth, self.sync_method, self.compression_method, self.sharding_method, self.noise_scale_every
        )
        require_synchronous_average(self.average_weights, self.sync_method)
        require_scaling_rule(self.scaling_rule, self.base_batch)
        self._require_workload_or_command()
        if self.lora_rank is not None and self.init_from is None:
            raise EquipoiseError("option-conflict", "--lora-rank has no effect without --init-from")
        if self.lora_rank is not None and self.freeze_stages:
            raise EquipoiseError("option-conflict", "--lora-rank freezes all weights already", "omit --freeze-stages")

    def with_defaults(self, workload_defaults: Mapping[str, Any] = MappingProxyType({})) -> "TrainConfig":
        """Return the options with values for those that were not given: of the workload, or else the general ones."""
        values = OPTION_DEFAULTS | dict(workload_defaults)
        if self.warmup is not None:
            values.pop("warmup_examples", None)  # else it would replace the warm-up that was asked for
        config = replace(self, **{name: value for name, value in values.items() if getattr(self, name) is None})
        if self.scaling_rule == "none":
            return config
        # as the rate for the batch of the run, which a second call leaves as it is
        lr = scale_lr(self.scaling_rule, config.lr, self.global_batch, self.base_batch)
        return replace(config, lr=lr, base_batch=self.global_batch)

    def _require_workload_or_command(self) -> None:
        """Refuse both or none of a workload and a command, and options that the other of the two has."""
        if (self.workload is None) == (self.command is None):
            if self.command is None:
                raise EquipoiseError("option-missing", "missing: --workload or --command", "give one of the two")
            raise EquipoiseError("option-conflict", "got both --workload and --command", "give one of the two")
        if self.command is not None:
            split_command(self.command)  # refuses an empty one, and an open quote
            if self.lr is None:
                object.__setattr__(self, "lr", OPTION_DEFAULTS["lr"])  # a command has no further defaults
        if (self.metric_pattern is None) != (self.examples_pattern is None):
            raise EquipoiseError("option-missing", "--metric-pattern and --examples-pattern need each other")
        for field in fields(TrainConfig):
            is_changed = getattr(self, field.name) != field.default
            flag = f"--{field.name.replace('_', '-')}"
            if self.command is None and field.name in COMMAND_OPTIONS and is_changed:
                raise EquipoiseError("option-conflict", f"{flag} has no effect without --command")
            if self.command is not None and is_changed and field.name not in COMMAND_OPTIONS | SHARED_OPTIONS:
                raise EquipoiseError(
                    "option-conflict", f"{flag} has no effect on a --command", "write it into the command itself"
                )

    @property
    def _max_workers(self) -> int:
        return self.workers  # options of a command take it from a range later

    @property
    def name(self) -> str:
        """Name of what is trained: the workload, or the program that --command runs."""
        return self.workload or find_program_name(self.command or "")

    @property
    def sync_method(self) -> SyncMethod:
        """Parsed value of --sync: when workers exchange."""
        return parse_sync(self.sync)

    @property
    def compression_method(self) -> CompressionMethod:
        """Parsed value of --compression: what workers send."""
        return parse_compression(self.compression)

    @property
    def sharding_method(self) -> ShardingMethod:
        """Parsed value of --sharding: what each worker holds of the model."""
        return parse_sharding(self.sharding)

    @property
    def batch_growth(self) -> BatchGrowth:
        """Parsed value of --grow-batch: how the global batch grows in a run."""
        return parse_growth(self.grow_batch)

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches in a global batch; each has an index, whichever worker computes it."""
        return self.workers * self.grad_accumulation

    @property
    def global_batch(self) -> int:
        """Number of examples that one optimizer step averages over."""
        return self.num_micro_batches * self.batch_size
