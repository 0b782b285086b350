"""Train on a folder of images in a process with a memory limit, then without one: python -m ... FOLDER FREE_BYTES.

Each time the losses, the metric and the peak of the memory above that of the imported libraries are printed as a line
of JSON.
"""

import json
import resource
import sys
import threading
from dataclasses import replace

import psutil
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads.image_folder import image_folder
from equipoise.workloads.models import model_factory

MODEL = "mobilenet_v3_small"  # checked by the workload, then replaced by a smaller one
PROCESS = psutil.Process()


class PeakMemory:
    """Largest anonymous memory of this process during the block, above that at its start."""

    def __enter__(self):
        self.start = self.peak = PROCESS.memory_info().data
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.ended.wait(0.002):
            self.peak = max(self.peak, PROCESS.memory_info().data)

    def __exit__(self, *details):
        self.ended.set()
        self.thread.join()

    @property
    def bytes(self):
        return self.peak - self.start


def build_small_model():
    return nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(3 * 8 * 8, 2))


def train(folder):
    config = TrainConfig(
        workload="folder",
        model=MODEL,
        data=folder,
        image_size=256,
        batch_size=8,
        max_examples=64,
        target=2.0,
        augment=False,
    )
    with PeakMemory() as memory:
        workload = replace(image_folder(config), model=build_small_model)
        training = Training(config, workload)
        results = [(lap.loss, lap.metric) for lap in training.laps()]
    report = {"in_memory": workload.train.is_in_memory, "examples": len(workload.train), "results": results}
    print(json.dumps(report | {"peak_bytes": memory.bytes}), flush=True)


def main(folder, free_bytes):
    torch.set_num_threads(1)
    threading.stack_size(1 << 20)  # by default 8 MB each count as taken, and a large machine decodes with many threads
    model_factory(MODEL, num_classes=2, in_channels=3, image_size=256)  # imports torchvision
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (PROCESS.memory_info().data + int(free_bytes), limits[1]))
    train(folder)
    resource.setrlimit(resource.RLIMIT_DATA, limits)
    train(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
