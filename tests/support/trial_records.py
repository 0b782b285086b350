"""Records of trials as a sweep writes them."""

from dataclasses import replace

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.record import Lap, Record


def build_record(pace, batch, steps=40):
    """Build the record of a trial with this many seconds per step and a first lap that is ten times slower."""
    lap = Lap(step=steps, steps=steps, seen=steps * batch, examples=steps * batch, workers=1, lr=0.1, loss=1.0,
              seconds=pace * steps, data_seconds=0.0, compute_seconds=pace * steps, exchange_seconds=0.0)  # fmt: skip
    first = replace(lap, seconds=10 * lap.seconds)  # with cold caches
    return Record(
        config=TrainConfig(workload="digits", batch_size=batch).with_defaults(),
        machine=HardwareFacts(),
        laps=[first, lap, lap],
        status="max_examples",
        target=0.9,
        examples_to_target=None,
        test=None,
    )
