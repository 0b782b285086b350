"""Train the small detector by our loop and by torchvision's reference loop: python -m benchmarks.detection_loop.

The reference is `train_one_epoch` of torchvision's references/detection/engine.py with its data loader: one picture and
a dict of boxes at a time, with the transforms of its preset `hflip`, and in the model the transform with which every
detector of torchvision takes its pictures, one by one. Its pictures come from files, as in its data sets; `--in-memory`
holds them decoded. Model, loss, optimizer, rate, batch, pictures and changes (flip alone) are the same. Rounds are
interleaved, and each has another seed. `--clock cpu` counts seconds of the processor: on a machine that is shared.
"""

import math
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.transforms import v2

from equipoise.boxes.mean_average_precision import MeanAveragePrecision, compute_precision
from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.images.augment import Augment
from equipoise.training.loop import Training
from equipoise.training.torch_state import flush_denormals
from equipoise.workloads import BoxWorkload, load_workload
from equipoise.workloads.detection.box_augment import BoxAugment, empty_boxes
from equipoise.workloads.detection.box_metric import box_rows
from equipoise.workloads.detection.center_loss import center_loss
from equipoise.workloads.detection.center_model import STRIDE

EVAL_BATCH = 50

Clock = Callable[[], float]
Loop = Callable[[TrainConfig], tuple[float, nn.Module]]


class ReferencePictures(Dataset[Any]):
    """Pictures with boxes as torchvision's references have them, read and transformed when they are needed."""

    def __init__(self, workload: BoxWorkload, folder: Path | None) -> None:
        self.split = workload.train
        self.paths = [] if folder is None else save_pictures(self.split.inputs, folder)
        self.transform = v2.Compose([v2.RandomHorizontalFlip(0.5), v2.ToImage(), v2.ToDtype(torch.float, scale=True)])

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Any:
        picture, boxes = self.split.inputs[index], self.split.targets[index]
        used = boxes[boxes[:, 0] >= 0]
        corners = torch.cat([used[:, 1:3], used[:, 1:3] + used[:, 3:5]], 1)
        target = {
            "boxes": tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=picture.shape[1:]),  # type: ignore[call-arg]
            "labels": used[:, 0].long(),
        }
        if self.paths:
            return self.transform(Image.open(self.paths[index]).convert("RGB"), target)
        return self.transform(tv_tensors.Image(picture), target)


def save_pictures(pictures: Tensor, folder: Path) -> list[Path]:
    """Save pictures as PNG files."""
    paths = [folder / f"{index:04}.png" for index in range(len(pictures))]
    for path, pixels in zip(paths, pictures.numpy(), strict=True):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(path)
    return paths


class ReferenceModel(nn.Module):
    """Our detector as the reference loop calls its models: lists of pictures and boxes in, a dict of losses out."""

    def __init__(self, workload: BoxWorkload, model: nn.Module) -> None:
        super().__init__()
        self.model, self.most_boxes = model, workload.train.targets.shape[1]
        side = workload.train.inputs.shape[2]
        self.transform = GeneralizedRCNNTransform(side, side, [*workload.mean], [*workload.std], size_divisible=STRIDE)

    def forward(self, pictures: list[Tensor], targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        batch, targets = self.transform(pictures, targets)
        boxes = torch.from_numpy(empty_boxes(len(targets), self.most_boxes)).float()
        for row, target in zip(boxes, targets, strict=True):
            count, corners = len(target["labels"]), target["boxes"]
            row[:count, 0] = target["labels"]
            row[:count, 1:3], row[:count, 3:5] = corners[:, :2], corners[:, 2:] - corners[:, :2]
        return {"loss": center_loss(self.model(batch.tensors), boxes)}


def train_reference(
    workload: BoxWorkload, pictures: ReferencePictures, clock: Clock, config: TrainConfig
) -> tuple[float, nn.Module]:
    """Train by torchvision's reference loop; return examples per second of training, and the model."""
    torch.manual_seed(config.seed)
    model = workload.model()
    wrapped = ReferenceModel(workload, model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=workload.defaults["lr"], weight_decay=1e-4)
    warmup_steps = workload.defaults["warmup_examples"] // config.batch_size
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=warmup_steps)
    loader = DataLoader(
        pictures,
        batch_size=config.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=lambda items: tuple(zip(*items, strict=True)),
    )
    assert config.max_examples is not None
    seen, start = 0, clock()
    while seen < config.max_examples:
        for images, targets in loader:
            losses = sum(wrapped([*images], [{**target} for target in targets]).values())
            assert isinstance(losses, Tensor)
            assert math.isfinite(losses.item())
            optimizer.zero_grad()
            losses.backward()
            optimizer.step()
            warmup.step()
            seen += config.batch_size
            if seen >= config.max_examples:
                break
    return seen / (clock() - start), model


def train_ours(workload: BoxWorkload, clock: Clock, config: TrainConfig) -> tuple[float, nn.Module]:
    """Train by our loop; return examples per second of training, and the model."""
    training = Training(replace(config, noise_scale_every=0), workload)  # which the reference does not measure
    training.steps.begin(training.loader, 0)
    assert config.max_examples is not None
    with flush_denormals():
        start = clock()
        training.take_steps(config.max_examples // config.batch_size)
        return config.max_examples / (clock() - start), training.model


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
    parser.add_argument("--model", default="center")
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = TrainConfig(
        workload="shelf",
        model=arguments.model,
        batch_size=arguments.batch_size,
        max_examples=arguments.max_examples,
        target=1.0,
    )
    workload = load_workload(config)
    assert isinstance(workload, BoxWorkload)
    workload = replace(workload, augment=BoxAugment(pictures=Augment(flip=True)))
    print(describe_hardware(torch.device("cpu")))
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    with TemporaryDirectory() as folder:
        pictures = ReferencePictures(workload, None if arguments.in_memory else Path(folder))
        loops = {
            "ours": partial(train_ours, workload, clock),
            "torchvision's reference": partial(train_reference, workload, pictures, clock),
        }
        compare_loops(loops, workload, config, arguments.rounds)


def compare_loops(loops: Mapping[str, Loop], workload: BoxWorkload, config: TrainConfig, rounds: int) -> None:
    """Train by both loops in turn, with another seed in each round."""
    ratios = []
    for seed in range(rounds):
        speeds = []
        for name, train in loops.items():
            speed, model = train(replace(config, seed=seed))
            precision = measure_precision(workload, model)
            print(
                f"{name}, seed {seed}: {speed:.1f} examples/s,"
                f" mAP {precision.overall:.3f}, mAP@.5 {precision.at_50:.3f}",
                flush=True,
            )
            speeds.append(speed)
        ratios.append(speeds[0] / speeds[1])
    print(f"ours / reference: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
