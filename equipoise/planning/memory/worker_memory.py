"""Peak memory of a worker's tensors by closed form, part by part, for each kind of --sharding.

    w + g + k w + activations(b), and with full sharding (2 + k) w / p + the two largest units + activations(b)

w are the weights, g their gradients in buckets, k the moments of the optimizer. Rajbhandari et al., ZeRO, 2019. Stages
of a pipeline and divided layers have weights and passes of their own. GPipe keeps the activations of all M
micro-batches, 1F1B of as many as there are stages from this one on (Narayanan et al., PipeDream-Flush, 2021). Left out
is what algorithms of --all-reduce and the parameter store hold.
"""

from dataclasses import replace
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


class PassPeak(NamedTuple):
    """Bytes at the largest moment of the passes of a step."""

    activations: float
    gradients: float

    @property
    def total(self) -> float:
        """Bytes of activations and gradients together."""
        return self.activations + self.gradients


def predict_worker_memory(sizes: ModelSizes, config: TrainConfig, *, has_gpu: bool = False) -> WorkerMemory:
    """Return the memory of the worker that needs most, at its options' batch size."""
    parts = list_part_sizes(sizes, config)
    needs = [predict_part_memory(part, config, len(parts) - index, has_gpu=has_gpu) for index, part in enumerate(parts)]
    return max(needs, key=lambda memory: memory.total)


def list_part_sizes(sizes: ModelSizes, config: TrainConfig) -> list[ModelSizes]:
    """Return what workers hold that need not need the same: stages of a pipeline, equal ones if none were measured.

    Of divided layers that were not measured nothing is known but the whole.
    """
    method = config.sharding_method
    if sizes.parts and sizes.parts_sharding == config.sharding and method.splits_layers:
        return [*sizes.parts]
    if method.kind != "pipeline":
        return [sizes]
    stages = method.group_size
    names = "parameter_bytes", "trainable_bytes", "factored_bytes"
    passes = "kept_bytes", "kept_bytes_per_example", "pass_bytes", "pass_bytes_per_example"
    return [replace(sizes, **{name: getattr(sizes, name) / stages for name in names + passes})] * stages


def predict_part_memory(
    sizes: ModelSizes, config: TrainConfig, stages_left: int, *, has_gpu: bool = False
) -> WorkerMemory:
    """Return the memory of a worker with these sizes; of a pipeline, with so many stages from its own on."""
    method, workers, batch_size = config.sharding_method, config.workers, config.batch_size
    kind, group = method.kind, method.group_size or workers
    share = 1 / group if kind == "full" else 1.0
    gradient = share * sizes.trainable_bytes
    micro_batches = config.grad_accumulation * (group if method.splits_layers else 1)
    replicas = workers // group if method.splits_layers else workers
    has_buckets = kind != "full" and (replicas > 1 or (gradient > BUCKET_THRESHOLD_BYTES and not has_gpu))
    is_moved = has_buckets and gradient > BUCKET_THRESHOLD_BYTES  # into buckets, as soon as it is known
    is_gpipe = config.pipeline_schedule == "gpipe"
    in_flight = 1 if kind != "pipeline" else micro_batches if is_gpipe else min(micro_batches, stages_left)
    kept, whole_pass = sizes.kept_at(batch_size), sizes.pass_at(batch_size)
    peak = find_pass_peak(kept, whole_pass, gradient, in_flight, micro_batches)
    if kind == "full" or (is_moved and micro_batches == 1):
        peak = PassPeak(whole_pass, gradient if kind == "full" else 0.0)
    # of the largest unit, beside that of earlier micro-batches
    summed_part = sizes.largest_unit_bytes / group if kind == "full" and group > 1 and micro_batches > 1 else 0.0
    # of a pipeline: the next value, the gradient of the last one, and the next gradient beside the present one
    values = batch_size * (2 * sizes.received_bytes_per_example + sizes.sent_bytes_per_example)
    is_small = replicas > 1 and kind != "full" and gradient * replicas <= MAX_ALL_TO_ALL_BYTES and not has_gpu
    return WorkerMemory(
        weights=share * sizes.parameter_bytes + sizes.buffer_bytes,
        gradients=peak.gradients,
        buckets=gradient if has_buckets else 0.0,
        moments=moment_bytes(sizes, config, gradient) / (workers if kind == "optimizer" else 1),
        activations=peak.activations,
        batch=batch_bytes(sizes, batch_size, micro_batches, in_flight),
        units=2 * sizes.largest_unit_bytes if kind == "full" and group > 1 else 0.0,
        exchange=values + (replicas * gradient if is_small else summed_part),
        noise_probe=max(0.0, probe_bytes(sizes, config) - peak.total),
        copies=copy_bytes(sizes, config, share, has_gpu),
    )


def find_pass_peak(kept: float, whole_pass: float, gradient: float, in_flight: int, micro_batches: int) -> PassPeak:
    """Return the largest memory of the passes of a step, of whose micro-batches so many are in flight at most.

    In the first backward pass the gradient grows while activations go. In later ones it lies beside them, and as many
    are in flight again if forward passes are left.
    """
    first = (in_flight - 1) * kept + whole_pass
    growing = PassPeak(first, max(0.0, gradient - first))
    if micro_batches == 1:
        return growing
    is_full_again = micro_batches > in_flight or in_flight == 1
    later = PassPeak(first if is_full_again else first - kept, gradient)
    return max(growing, later, key=lambda peak: peak.total)


def moment_bytes(sizes: ModelSizes, config: TrainConfig, gradient: float) -> float:
    """Return the bytes of the state of the optimizer for the gradient that a worker holds."""
    if config.optimizer == "adafactor":
        return sizes.factored_bytes * gradient / max(1, sizes.trainable_bytes)
    if config.optimizer in (None, "sgd", "lars") and not config.momentum:
        return 0.0
    return MOMENTS.get(config.optimizer or "sgd", 2) * gradient


def batch_bytes(sizes: ModelSizes, batch_size: int, micro_batches: int, in_flight: int) -> float:
    """Return the bytes of the inputs and targets that are ready: of a step, or of several small ones.

    Examples that are read one by one are ready for a micro-batch at a time.
    """
    micro_bytes = sizes.example_bytes * batch_size
    if not sizes.input_bytes:
        return in_flight * micro_bytes
    return max(1, PREFETCH_BYTES // (sizes.input_bytes * batch_size * micro_batches)) * micro_batches * micro_bytes


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
