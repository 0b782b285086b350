"""Train the small detector by our loop and by torchvision's reference loop: python -m benchmarks.detection_loop.

The reference is `train_one_epoch` of torchvision's references/detection/engine.py with its data loader: a list of
pictures and a dict of boxes each, transformed one by one. Model, loss, optimizer, rate, batch, pictures and changes
(flip alone) are the same. Rounds are interleaved, and each has another seed.
"""

import math
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

from equipoise.boxes.mean_average_precision import MeanAveragePrecision, compute_precision
from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.images.augment import Augment
from equipoise.training.loop import Training
from equipoise.workloads import BoxWorkload, load_workload
from equipoise.workloads.detection.box_augment import BoxAugment, empty_boxes
from equipoise.workloads.detection.box_metric import box_rows
from equipoise.workloads.detection.center_loss import center_loss

EVAL_BATCH = 50


class ReferencePictures(Dataset[Any]):
    """Pictures with boxes as torchvision's references have them, transformed when they are read."""

    def __init__(self, workload: BoxWorkload) -> None:
        self.split = workload.train
        self.transform = v2.Compose(
            [
                v2.RandomHorizontalFlip(0.5),
                v2.ToDtype(torch.float, scale=True),
                v2.Normalize(workload.mean, workload.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Any:
        picture, boxes = self.split.inputs[index], self.split.targets[index]
        used = boxes[boxes[:, 0] >= 0]
        target = {
            "boxes": tv_tensors.BoundingBoxes(used[:, 1:5], format="XYWH", canvas_size=picture.shape[1:]),  # type: ignore[call-arg]
            "labels": used[:, 0].long(),
        }
        return self.transform(tv_tensors.Image(picture), target)


class ReferenceModel(nn.Module):
    """Our detector as the reference loop calls its models: lists of pictures and boxes in, a dict of losses out."""

    def __init__(self, model: nn.Module, most_boxes: int) -> None:
        super().__init__()
        self.model, self.most_boxes = model, most_boxes

    def forward(self, pictures: Sequence[Tensor], targets: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        boxes = torch.from_numpy(empty_boxes(len(targets), self.most_boxes)).float()
        for row, target in zip(boxes, targets, strict=True):
            row[: len(target["labels"]), 0] = target["labels"]
            row[: len(target["labels"]), 1:5] = target["boxes"]
            row[: len(target["labels"]), 5] = 0
        return {"loss": center_loss(self.model(torch.stack(list(pictures))), boxes)}


def train_reference(workload: BoxWorkload, config: TrainConfig) -> tuple[float, nn.Module]:
    """Train by torchvision's reference loop; return examples per second of training, and the model."""
    torch.manual_seed(config.seed)
    model = workload.model()
    wrapped = ReferenceModel(model, workload.train.targets.shape[1]).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=workload.defaults["lr"], weight_decay=1e-4)
    warmup_steps = workload.defaults["warmup_examples"] // config.batch_size
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=warmup_steps)
    loader = DataLoader(
        ReferencePictures(workload),
        batch_size=config.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=lambda items: tuple(zip(*items, strict=True)),
    )
    assert config.max_examples is not None
    seen, start = 0, time.perf_counter()
    while seen < config.max_examples:
        for pictures, targets in loader:
            losses = sum(wrapped([*pictures], [{**target} for target in targets]).values())
            assert isinstance(losses, Tensor)
            assert math.isfinite(losses.item())
            optimizer.zero_grad()
            losses.backward()
            optimizer.step()
            warmup.step()
            seen += config.batch_size
            if seen >= config.max_examples:
                break
    return seen / (time.perf_counter() - start), model


def train_ours(workload: BoxWorkload, config: TrainConfig) -> tuple[float, nn.Module]:
    """Train by our loop; return examples per second of training, and the model."""
    training = Training(config, workload)
    seconds = sum(lap.seconds for lap in training.laps())
    assert config.max_examples is not None
    return config.max_examples / seconds, training.model


def measure_precision(workload: BoxWorkload, model: nn.Module) -> MeanAveragePrecision:
    """Return the mean average precision of a model on the test split."""
    transform = workload.input_transform(torch.device("cpu"), torch.float32)
    rows = []
    with torch.no_grad():
        for start in range(0, len(workload.test), EVAL_BATCH):
            inputs, targets = workload.test.read_examples(range(start, min(start + EVAL_BATCH, len(workload.test))))
            rows.append(box_rows(model.eval()(transform(inputs)), targets))
    return compute_precision(torch.cat(rows).numpy())


def main() -> None:
    """Train in interleaved rounds, and print a line for each and the ratio of speeds."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-examples", type=int, default=2400)
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = TrainConfig(
        workload="shelf",
        batch_size=arguments.batch_size,
        max_examples=arguments.max_examples,
        eval_every=arguments.max_examples,
        target=1.0,
    )
    workload = load_workload(config)
    assert isinstance(workload, BoxWorkload)
    workload = replace(workload, augment=BoxAugment(pictures=Augment(flip=True)))
    print(describe_hardware(torch.device("cpu")))
    loops = {"ours": partial(train_ours, workload), "torchvision's reference": partial(train_reference, workload)}
    ratios = []
    for seed in range(arguments.rounds):
        speeds = {}
        for name, train in loops.items():
            speeds[name], model = train(replace(config, seed=seed))
            precision = measure_precision(workload, model)
            print(
                f"{name}, seed {seed}: {speeds[name]:.1f} examples/s,"
                f" mAP {precision.overall:.3f}, mAP@.5 {precision.at_50:.3f}",
                flush=True,
            )
        ratios.append(speeds["ours"] / speeds["torchvision's reference"])
    print(f"ours / reference: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
