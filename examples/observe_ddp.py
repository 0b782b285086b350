"""Watch a training loop of your own on two workers: where the time of a step goes, and the gradient noise scale.

    torchrun --standalone --nproc-per-node 2 examples/observe_ddp.py
    equipoise pages runs

The loop is plain PyTorch; the lines with `observe` in them are all that is added. A batch size far above the
noise scale wastes examples, one far below it wastes workers.
"""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import equipoise

BATCH_SIZE, EPOCHS, VALIDATION_IMAGES = 32, 6, 297


def load_images() -> TensorDataset:
    """Load scikit-learn's handwritten digits, which need no download."""
    digits = load_digits()
    return TensorDataset(torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target))


def build_model() -> nn.Module:
    """Build a small convolutional network."""
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10)]
    return nn.Sequential(*layers)


def measure_accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images that the model gets right."""
    model.eval()
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).double().mean()
    model.train()
    return float(accuracy)


def train_observed(out: str) -> None:
    """Train on all workers, and print on the first one what was observed."""
    images = load_images()
    validation = images[-VALIDATION_IMAGES:]
    train = TensorDataset(*images[:-VALIDATION_IMAGES])
    sampler = DistributedSampler(train, drop_last=True)
    loader = DataLoader(train, BATCH_SIZE, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with equipoise.observe(
        model, optimizer, batch_size=BATCH_SIZE, out=out, name="observed-digits", target=0.95, noise_scale_every=1
    ) as observer:
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for inputs, labels in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
            observer.report(metric=measure_accuracy(model.module, *validation))
    if dist.get_rank() == 0:
        print(observer.summary)
        print(f"metric: {observer.laps[-1].metric:.3f}")


def main() -> None:
    """Join the process group of torchrun, train, and leave it together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/observed", help="new folder for the record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    try:
        train_observed(arguments.out)
        dist.barrier()  # no rank leaves while another still waits for it
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
