"""Step times of two devices by a closed form, of which one is twice as slow, and training runs that they share."""

import pandas as pd

SLOWNESS = {"a10": 2.0, "h100": 1.0}
GRADIENT_BYTES = 1e7


def step_seconds(workers, batch, device="h100"):
    """Return the seconds of a step on a device."""
    return SLOWNESS[device] * (0.01 + 0.001 * batch + 0.02 * (workers - 1) / workers)


def build_device_steps(devices=("a10", "h100"), workers=(1, 2), batches=(32, 128)):
    """Return step times of these devices on one node."""
    rows = [
        (1, count, batch, step_seconds(count, batch, device), device)
        for device in devices
        for count in workers
        for batch in batches
    ]
    return pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "device"])


def build_energy_steps():
    """Return step times of one device with joules: a static power of 90 W a worker, and 0.8 J an example."""
    steps = build_device_steps(["h100"]).drop(columns="device")
    return steps.assign(joules=steps.workers * (90 * steps.seconds + 0.8 * steps.batch))


def build_shared_runs():
    """Return training runs with a critical batch of 300 examples."""
    rows = [
        (batch, 0.1, seed, 20_000 * (1 + batch / 300) * (1 + 0.01 * seed), 1)
        for batch in (64, 128, 256)
        for seed in range(2)
    ]
    return pd.DataFrame(rows, columns=["global_batch", "lr", "seed", "examples", "reached"])
