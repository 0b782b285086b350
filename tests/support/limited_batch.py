"""Program that finds the largest batch under a limit of its memory, or trains with one.

    python -m tests.support.limited_batch BYTES [BATCH_SIZE ...]

Each batch size is tried in a process of its own: one that has been out of memory is left with small gaps.
"""

import json
import os
import resource
import sys
from dataclasses import replace

import psutil
import torch

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.memory.fit_batch import fit_batch_size
from equipoise.training.memory.out_of_memory import is_out_of_memory
from equipoise.workloads.text.gpt import GPT
from tests.support.block_models import CONTEXT, VOCABULARY, transformer

CPU = torch.device("cpu")
CONFIG = TrainConfig(workload="tests.support.block_models:transformer", max_examples=1 << 20, noise_scale_every=0)


def build_workload():
    return replace(transformer(), model=lambda: GPT(VOCABULARY, CONTEXT, layers=2, width=256, heads=4))


def limit_memory(free_bytes):
    Training(replace(CONFIG, batch_size=4), build_workload()).fits_in_memory()  # loads what a first pass loads
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (psutil.Process().memory_info().data + free_bytes, hard_limit))


def trains_with(batch_size):
    try:
        training = Training(replace(CONFIG, batch_size=batch_size), build_workload())
        training.steps.begin(training.loader, 0)
        training.take_steps(3)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def call_in_child(function, free_bytes, *args):
    """Return what a function returns in a copy of this process with a limit of its memory."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            limit_memory(free_bytes)
            os.write(writer, json.dumps(function(*args)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        result = json.loads(file.read())
    os.waitpid(child, 0)
    return result


def main(free_bytes, *batch_sizes):
    torch.set_num_threads(1)
    found = call_in_child(lambda: fit_batch_size(CONFIG, build_workload(), CPU), free_bytes)
    tried = {
        size: call_in_child(trains_with, free_bytes, size) for size in batch_sizes or (found, round(found * 4 / 3))
    }
    print(json.dumps({"found": found, "tried": list(tried.items())}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
