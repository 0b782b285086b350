"""Train on two workers under torchrun, without Ray: the workers are the ranks of PyTorch's process group.

    torchrun --standalone --nproc-per-node 2 examples/train_with_torchrun.py

Two workers with a batch of 32 take the same steps as one worker with two micro-steps of 32: `--grad-accumulation 2` and
`--nproc-per-node 1` print the same metrics, but for rounding.
"""

import argparse

import torch
import torch.distributed as dist

from equipoise import TrainConfig, Training


def train_digits(grad_accumulation: int) -> None:
    """Train handwritten digits on all ranks; the first one prints what each evaluation finds."""
    config = TrainConfig(
        workload="digits",
        workers=dist.get_world_size(),
        grad_accumulation=grad_accumulation,
        batch_size=32,
        lr=0.05,
        precision="fp64",
        target=0.9,
        eval_every=1024,
    )
    training = Training(config)  # ranks agree on the weights, and each takes its share of every global batch
    is_first = dist.get_rank() == 0
    for lap in training.laps():
        if is_first and lap.metric is not None:
            print(f"{training.examples_seen} examples seen, validation metric {lap.metric:.6f}", flush=True)
    accuracy = training.evaluate(training.workload.test)  # by all ranks together, so not inside of `if is_first`
    if is_first:
        print(f"{training.status} on {training.workers} workers; test metric {accuracy:.6f}", flush=True)


def main() -> None:
    """Join the process group that torchrun describes in the environment, train, and leave it together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grad-accumulation", type=int, default=1, metavar="N")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train_digits(arguments.grad_accumulation)
        dist.barrier()  # no rank leaves while another still waits for it
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
