"""Comparisons of one worker with two in closed form: a step takes a fixed time and one for each example."""

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.device_comparison.comparison_report import DeviceComparison, SharedSteps
from equipoise.planning.device_comparison.predict_sharing import MeasuredTurns, compare_steps

FIXED_SECONDS, SECONDS_PER_EXAMPLE, EXCHANGE_SECONDS = 1e-3, 1e-5, 1e-3
CROSSING = round(2 * EXCHANGE_SECONDS / SECONDS_PER_EXAMPLE)  # where half of the examples take as long as an exchange
BATCHES = (8, 16, 32, 64, 128, 256, 512, 1024)


def own_step_seconds(batch):
    """Return the seconds of a step of one worker."""
    return FIXED_SECONDS + SECONDS_PER_EXAMPLE * batch


def build_turns(batches=BATCHES, *, exchange=EXCHANGE_SECONDS, measured=True, noise=(1.0, 1.0, 1.0), **changed):
    """Return turns of steps of one worker, and of two with an exchange of so many seconds, each times its noise."""
    sizes = {size for batch in batches for size in (batch, batch // 2)}
    shared = {
        batch: [
            SharedSteps(seconds=factor * (own_step_seconds(batch // 2) + exchange), exchange_seconds=factor * exchange)
            for factor in noise
        ]
        for batch in batches
    }
    turns = {
        "workers": 2,
        "one": {size: [factor * own_step_seconds(size) for factor in noise] for size in sizes},
        "beside": {batch // 2: [factor * own_step_seconds(batch // 2) for factor in noise] for batch in batches},
        "exchange": [factor * exchange for factor in noise],
        "last_bucket": [factor * exchange for factor in noise],
        "several": shared if measured else {},
        "is_hidden": False,
    }
    return MeasuredTurns(**turns | changed)


def build_comparison(batches=BATCHES, *, batch_size=32, **options):
    """Return a comparison of these turns."""
    compared = compare_steps(batches, build_turns(batches, **options))
    return DeviceComparison(
        config=TrainConfig(workload="digits", batch_size=batch_size, lr=0.1),
        machine=HardwareFacts(processor="a processor", cores=2),
        nodes=1,
        workers=2,
        train_examples=1024,
        gradient_bytes=1 << 16,
        flop_per_example=float(1 << 20),
        exchange_seconds=EXCHANGE_SECONDS,
        rows=compared.rows,
        predicted_crossing=compared.predicted_crossing,
        measured_crossing=compared.measured_crossing,
    )
