"""Where the time of a step goes, by cause: what is lost in waiting, and the work of each layer."""

import math

from equipoise.planning.interval import IntervalEstimate
from equipoise.profiling.profile_report import LayerWork, LossKind, ProfileReport, StepLoss

LOST_KINDS: tuple[LossKind, ...] = ("data", "sync", "exchange", "imbalance")
MIN_LOST_SHARE = 0.05  # of a step: a smaller loss stands behind the work
COLD_WAIT_SHARE = 0.3  # of a step waiting for batches, from which passes start with cold caches
MIN_SHOWN_SHARE = 0.005
NORMAL_QUANTILE = 1.2816  # of an interval of 80 %
RELATIVE_ERROR = 0.15  # of the log of a predicted gain: parts of a step overlap and share processors
MIN_NOISE = 0.01  # log seconds of two timings of the same


def rank_losses(report: ProfileReport) -> tuple[StepLoss, ...]:
    """Return the parts of a step by cause: those lost in waiting first, each with the largest first."""
    shown = [loss for loss in list_losses(report) if loss.seconds >= MIN_SHOWN_SHARE * report.steps.seconds]
    return tuple(sorted(shown, key=lambda loss: (not is_lost(loss, report), -loss.seconds)))


def is_lost(loss: StepLoss, report: ProfileReport) -> bool:
    """Return whether a worker computes nothing meanwhile, for a share of a step that counts."""
    return loss.kind in LOST_KINDS and loss.seconds >= MIN_LOST_SHARE * report.steps.seconds


def list_losses(report: ProfileReport) -> list[StepLoss]:
    """List the parts of a step by cause, in no order."""
    points = report.sync_points
    layers = [layer for layer in report.layers if layer.seconds]
    return [
        build_loss(report, "data", "waiting for batches", data_seconds(report), saved_by_data(report)),
        build_loss(report, "exchange", "waiting for the exchange of gradients", exchange_seconds(report)),
        build_loss(report, "imbalance", describe_slowest(report), imbalance_seconds(report)),
        build_loss(report, "optimizer", "optimizer", max(part.optimizer for part in report.steps.parts)),
        *(build_loss(report, "sync", f"{point.operation} at {point.place}", point.seconds) for point in points),
        *(build_layer_loss(report, layer) for layer in layers),
    ]


def build_layer_loss(report: ProfileReport, layer: LayerWork) -> StepLoss:
    """Build the part of a step that a layer takes; without it, its weights are neither updated nor exchanged."""
    name = f"layer {layer.name or '(none)'}: {layer.kind}"
    return build_loss(report, "layer", name, layer.seconds or 0.0, saved_by_layer(report, layer))


def build_loss(
    report: ProfileReport, kind: LossKind, name: str, seconds: float, saved_seconds: float | None = None
) -> StepLoss:
    """Build a part of a step, with the gain of a step without it; it saves as many seconds by default."""
    saved = seconds if saved_seconds is None else saved_seconds
    return StepLoss(kind=kind, name=name, seconds=seconds, gain=predict_gain(report, saved_gain(report, saved)))


def saved_gain(report: ProfileReport, seconds: float) -> float:
    """Return the gain of a step that is shorter by so many seconds."""
    whole = report.steps.seconds
    return whole / max(whole - seconds, 0.01 * whole)


def predict_gain(report: ProfileReport, gain: float, log_sd: float = 0.0) -> IntervalEstimate:
    """Return a gain with its interval of 80 %, from the noise of the timings and the error of such predictions."""
    noise = math.hypot(max(report.steps.pace_sd, MIN_NOISE), log_sd, RELATIVE_ERROR * math.log(gain))
    factor = math.exp(NORMAL_QUANTILE * noise)
    return IntervalEstimate(value=gain, low=gain / factor, high=gain * factor)


def data_seconds(report: ProfileReport) -> float:
    """Return the seconds of a step in which the worker that waits longest waits for batches."""
    return max(part.data for part in report.steps.parts)


def saved_wait(report: ProfileReport) -> float:
    """Return the seconds of a step that the wait for batches takes, beyond the exchange that it hides."""
    slowest = max(report.steps.parts, key=lambda part: part.data)
    return max(0.0, slowest.data - slowest.exchange_under_data)


def saved_by_data(report: ProfileReport) -> float:
    """Return by how many seconds a step is shorter if its batches are in memory: passes that never wait are faster."""
    slowest = max(report.steps.parts, key=lambda part: part.data)
    alone = report.timings.pass_seconds
    colder = 0.0 if alone is None else max(0.0, slowest.forward + slowest.backward - alone)
    waits_share = min(1.0, slowest.data / slowest.seconds / COLD_WAIT_SHARE)  # short waits leave caches warm
    return max(0.0, slowest.data + waits_share * colder - slowest.exchange_under_data)


def saved_by_layer(report: ProfileReport, layer: LayerWork) -> float:
    """Return by how many seconds a step is shorter without a layer: its passes, and what its weights take then."""
    all_bytes = sum(other.parameter_bytes for other in report.layers)
    share = layer.parameter_bytes / all_bytes if all_bytes else 0.0
    after_passes = min(part.optimizer for part in report.steps.parts)
    after_passes += volume_share(report.timings.sum_seconds, report.timings.gradient_bytes) * exchange_seconds(report)
    return (layer.seconds or 0.0) + share * after_passes


def volume_share(sum_seconds: dict[int, float], gradient_bytes: int) -> float:
    """Return the share of the time of a sum of all gradients that depends on its bytes; 0 if it is not known."""
    if len(sum_seconds) < 2:
        return 0.0
    (small, small_seconds), (large, large_seconds) = min(sum_seconds.items()), max(sum_seconds.items())
    seconds_per_byte = max(0.0, (large_seconds - small_seconds) / (large - small))
    delay = max(0.0, small_seconds - seconds_per_byte * small)
    volume = seconds_per_byte * gradient_bytes
    return volume / (delay + volume) if volume else 0.0


def exchange_seconds(report: ProfileReport) -> float:
    """Return the seconds of a step that the exchange takes beyond what it hides behind, on the worker that is last."""
    return min(part.exchange for part in report.steps.parts)


def imbalance_seconds(report: ProfileReport) -> float:
    """Return the mean seconds of a step in which workers wait for a slower one."""
    waits = [part.exchange + part.sync for part in report.steps.parts]
    return sum(waits) / len(waits) - min(waits)


def describe_slowest(report: ProfileReport) -> str:
    """Return in words which worker the others wait for."""
    waits = [part.exchange + part.sync for part in report.steps.parts]
    return f"waiting for worker {waits.index(min(waits))}, the slowest"
