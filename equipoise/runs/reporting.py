"""Report the progress of a training program of your own to the sweep or run that started it."""

import json
import os
import time


def report(*, examples: int, metric: float | None = None, seconds: float | None = None) -> None:
    """Print the progress of training as one JSON line, which `equipoise sweep --command` and `train --command` read.

    Of several processes that training starts, only the one with RANK 0 prints. Call it with `examples=0` when training
    begins, after imports and data are loaded, so that these are not counted.

    Args:
        examples: examples seen so far, by all workers together
        metric: metric on the validation data, where it was just evaluated
        seconds: seconds of training so far, where they differ from those on the clock, as with long evaluations
    """
    if os.environ.get("RANK", "0") != "0":
        return
    # numbers of NumPy and PyTorch cannot be written as JSON
    numbers = {"metric": metric, "seconds": seconds, "clock": time.monotonic()}  # its reader may be late
    values = {"examples": int(examples), **{name: float(value) for name, value in numbers.items() if value is not None}}
    print(json.dumps(values), flush=True)  # noqa: T201 - the report itself
