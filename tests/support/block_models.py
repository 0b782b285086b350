"""Workloads whose models have blocks: convolutions with batch normalisation and dropout, and a transformer."""

import torch
from torch import nn
from torch.nn import functional as F

from equipoise.workloads import Split, Workload
from equipoise.workloads.text.gpt import GPT

VOCABULARY, CONTEXT = 11, 8


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation and dropout, added to what they read."""

    def __init__(self, width, momentum):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width, momentum=momentum)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return F.relu(x + self.norm2(self.conv2(self.dropout(F.relu(self.norm1(self.conv1(x)))))))


class Classifier(nn.Module):
    """Convolution, two residual blocks, of which one averages its statistics over all batches, and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1)
        self.blocks = nn.Sequential(ResidualBlock(6, momentum=0.1), ResidualBlock(6, momentum=None))
        self.head = nn.Linear(6, 10)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def build_workload(name, build_split, model, loss, metric, **fields):
    """Return a workload whose four splits hold a few examples drawn at random."""
    names = ("train", "validation", "reference", "test")
    splits = {split: build_split(torch.Generator().manual_seed(seed)) for seed, split in enumerate(names)}
    return Workload(name=name, model=model, target=None, loss=loss, metric=metric, **splits, **fields)


def residual(config=None):
    """Classify images of noise."""

    def build_split(generator):
        images = torch.randn(32, 1, 8, 8, generator=generator)
        return Split(images, torch.randint(0, 10, (32,), generator=generator))

    def is_right(scores, targets):
        return (scores.argmax(1) == targets).float()

    classes = [str(label) for label in range(10)]
    return build_workload("residual", build_split, Classifier, F.cross_entropy, is_right, classes=classes)


def transformer(config=None):
    """Predict the next of random tokens."""

    def build_split(generator):
        tokens = torch.randint(0, VOCABULARY, (32, CONTEXT + 1), generator=generator)
        return Split(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    def loss(scores, targets):
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def losses(scores, targets):
        return F.cross_entropy(scores.transpose(1, 2), targets, reduction="none").mean(1)

    def model():
        return GPT(VOCABULARY, CONTEXT, layers=2, width=16, heads=2)

    return build_workload("transformer", build_split, model, loss, losses, lower_is_better=True)
