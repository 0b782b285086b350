"""Our loop: torchrun ... -m benchmarks.equipoise_loop."""

import dataclasses
from collections import deque

import torch
import torch.distributed as dist

from benchmarks.timing import Clock
from benchmarks.training_case import case, parser
from equipoise.training.loop import Training


def main() -> None:
    """Take laps until the cap; the evaluation that the cap brings comes after the last step timed."""
    arguments = parser(__doc__)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    arguments.add_argument("--channels-last", action="store_true")
    arguments.add_argument("--compile", action="store_true")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asked = case(given, given.model)
    trial = dataclasses.replace(
        asked.trial(dist.get_world_size()),
        precision=given.precision,
        channels_last=given.channels_last,
        compile=given.compile,
    )
    training = Training(trial, device=torch.device(given.device))
    clock = Clock(asked)
    step = training.optimizer.step

    def timed(lr: float) -> None:
        step(lr)
        clock.tick()

    training.optimizer.step = timed  # type: ignore[method-assign]  # a hook for this one object
    deque(training.laps(), maxlen=0)
    clock.report()
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
