"""Peak memory of a worker's tensors by closed form, part by part, for each kind of --sharding.

    w + g + k w + activations(b), and with full sharding (2 + k) w / p + the two largest units + activations(b)

w are the weights, g their gradients in buckets, k the moments of the optimizer. Rajbhandari et al., ZeRO, 2019; of a
pipeline, GPipe keeps the activations of all M micro-batches, 1F1B of at most as many as there are stages
(Narayanan et al., PipeDream-Flush, 2021). Left out is what algorithms of --all-reduce and the parameter store hold.
"""

from typing import NamedTuple

from equipoise.config import TrainConfig
from equipoise.planning.memory.model_sizes import ModelSizes

MOMENTS = {"sgd": 1, "adamw": 2, "lars": 1, "lamb": 2}
"""copies of the weights in the state of an optimizer; Adafactor keeps sums of rows and columns"""
BUCKET_THRESHOLD_BYTES = 1 << 20
"""gradients that are larger have several buckets, and one worker has buckets too, on a CPU"""
MAX_ALL_TO_ALL_BYTES = 1 << 18
"""gradients over all workers that are summed by one all-to-all, with a copy for each"""
PREFETCH_BYTES = 1 << 20
"""inputs that are prepared at a time, for several steps where those of one are smaller"""


class WorkerMemory(NamedTuple):
    """Bytes of a worker at the peak of a step, by part."""

    weights: float
    """parameters and buffers that the worker holds"""
    gradients: float
    """gradients of earlier micro-batches, or those that outweigh the activations that they replace"""
    buckets: float
    """flat copies of the gradients, which are summed over workers"""
    moments: float
    """state of the optimizer"""
    activations: float
    """peak of a forward and backward pass above all this"""
    batch: float
    """inputs and targets that are ready"""
    units: float = 0.0
    """weights of other workers that are gathered for a while"""
    exchange: float = 0.0
    """copies of gradients for and from other workers"""
    noise_probe: float = 0.0
    """what a measurement of the noise scale takes beyond a step"""
    copies: float = 0.0
    """best weights so far, their average over steps, what compression left out, and the last average of DiLoCo"""

    @property
    def total(self) -> float:
        """Bytes of all parts together, at the peak."""
        return sum(self)


def predict_worker_memory(sizes: ModelSizes, config: TrainConfig, *, has_gpu: bool = False) -> WorkerMemory:
    """Return the memory of the worker that needs most, at its options' batch size."""
    kind, workers = config.sharding_method.kind, config.workers
    group = config.sharding_method.group_size or workers
    share = held_share(sizes, kind, group)
    gradient = share * sizes.trainable_bytes
    micro_batches = config.grad_accumulation * (group if kind in ("tensor", "pipeline") else 1)
    replicas = workers // group if kind in ("tensor", "pipeline") else workers
    has_buckets = kind != "full" and (replicas > 1 or (gradient > BUCKET_THRESHOLD_BYTES and not has_gpu))
    is_moved = has_buckets and gradient > BUCKET_THRESHOLD_BYTES  # into buckets, as soon as it is known
    activations = activation_bytes(sizes, config, group, micro_batches)
    if kind == "full" or micro_batches > 1:
        gradients = gradient
    else:  # grows in the backward pass, while activations go
        gradients = 0.0 if is_moved else max(0.0, gradient - activations)
    # of the largest unit, beside that of earlier micro-batches
    summed_part = sizes.largest_unit_bytes / group if kind == "full" and group > 1 and micro_batches > 1 else 0.0
    is_small = replicas > 1 and kind != "full" and gradient * replicas <= MAX_ALL_TO_ALL_BYTES and not has_gpu
    return WorkerMemory(
        weights=share * sizes.parameter_bytes + sizes.buffer_bytes,
        gradients=gradients,
        buckets=gradient if has_buckets else 0.0,
        moments=moment_bytes(sizes, config, gradient) / (workers if kind == "optimizer" else 1),
        activations=activations,
        batch=batch_bytes(sizes, config, micro_batches),
        units=2 * sizes.largest_unit_bytes if kind == "full" and group > 1 else 0.0,
        exchange=replicas * gradient if is_small else summed_part,
        noise_probe=max(0.0, probe_bytes(sizes, config) - gradients - activations),
        copies=copy_bytes(sizes, config, share, has_gpu),
    )


def held_share(sizes: ModelSizes, kind: str, group: int) -> float:
    """Return the share of the weights that a worker holds between steps."""
    if kind in ("full", "pipeline"):
        return 1 / group
    if kind == "tensor":
        return 1 - sizes.divided_bytes / max(1, sizes.parameter_bytes) * (1 - 1 / group)
    return 1.0


def activation_bytes(sizes: ModelSizes, config: TrainConfig, group: int, micro_batches: int) -> float:
    """Return the peak of the passes of a worker; in a pipeline several micro-batches are on their way."""
    whole_pass = sizes.pass_at(config.batch_size)
    if config.sharding_method.kind != "pipeline":
        return whole_pass
    in_flight = micro_batches if config.pipeline_schedule == "gpipe" else min(micro_batches, group)
    return (whole_pass + (in_flight - 1) * sizes.kept_at(config.batch_size)) / group


def moment_bytes(sizes: ModelSizes, config: TrainConfig, gradient: float) -> float:
    """Return the bytes of the state of the optimizer for the gradient that a worker holds."""
    if config.optimizer == "adafactor":
        return sizes.factored_bytes * gradient / max(1, sizes.trainable_bytes)
    if config.optimizer in (None, "sgd", "lars") and not config.momentum:
        return 0.0
    return MOMENTS.get(config.optimizer or "sgd", 2) * gradient


def batch_bytes(sizes: ModelSizes, config: TrainConfig, micro_batches: int) -> float:
    """Return the bytes of the inputs and targets that are prepared at a time: of a step, or of several small ones."""
    step_bytes = sizes.example_bytes * config.batch_size * micro_batches
    return max(1, PREFETCH_BYTES // max(1, step_bytes)) * step_bytes


def probe_bytes(sizes: ModelSizes, config: TrainConfig) -> float:
    """Return the peak of a measurement of the noise scale: passes of two halves, and both gradients with a third."""
    is_alone = config.workers == 1 and config.sync_method.kind == "step"
    if not is_alone or not config.noise_scale_every or config.batch_size < 2:
        return 0.0
    gradient = sizes.trainable_bytes
    return gradient + max(sizes.pass_at(config.batch_size // 2), 2 * gradient) + sizes.buffer_bytes


def copy_bytes(sizes: ModelSizes, config: TrainConfig, share: float, has_gpu: bool) -> float:
    """Return the bytes of copies of the weights and gradients that options ask for."""
    best = share * sizes.parameter_bytes + sizes.buffer_bytes if config.keep == "best" and not has_gpu else 0.0
    is_lossy = config.compression_method.kind not in ("none", "bf16") and config.error_feedback
    outer = 2 * sizes.trainable_bytes if config.sync_method.kind == "diloco" else 0
    average = share * sizes.trainable_bytes if config.average_weights else 0.0
    return best + (sizes.trainable_bytes if is_lossy else 0) + outer + average
