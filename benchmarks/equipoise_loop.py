"""The training loop of Equipoise: torchrun ... -m benchmarks.equipoise_loop."""

import dataclasses
from collections import deque

import torch
import torch.distributed as dist

from benchmarks.timing import StepClock
from benchmarks.training_case import build_case, build_case_parser
from equipoise.training.loop import Training


def main() -> None:
    """Train until the cap of examples; the evaluation that the cap triggers comes after the last timed step."""
    parser = build_case_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    case = build_case(arguments, arguments.model)
    config = dataclasses.replace(
        case.build_config(dist.get_world_size()),
        precision=arguments.precision,
        channels_last=arguments.channels_last,
        compile=arguments.compile,
    )
    training = Training(config, device=torch.device(arguments.device))
    clock = StepClock(case)
    take_step = training.optimizer.step

    def take_timed_step(lr: float) -> None:
        take_step(lr)
        clock.count_step()

    training.optimizer.step = take_timed_step  # type: ignore[method-assign]  # a hook for this one object
    deque(training.laps(), maxlen=0)
    clock.print_speed()
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
