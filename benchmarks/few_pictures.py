"""Fine-tune the detector of shelves to 40 hand-labelled pictures of other products: python -m benchmarks.few_pictures.

Boxes are two pixels off in the standard deviation of each edge, and one in twenty is missing; 24 of the pictures train,
and 200 others with exact boxes judge. Rounds have other pictures, noise and seeds; the control starts from nothing.
"""

from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.detection_loop import measure_precision
from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import BoxWorkload, load_workload
from equipoise.workloads.detection.boxes_folder import boxes
from tests.support.hand_labelled_shelves import PIXELS, save_hand_labelled_shelves, with_clean_test
from tests.support.saved_runs import save_run_weights

SHELF = TrainConfig(workload="shelf", batch_size=16, max_examples=2400, eval_every=2400, target=1.0)
FEW = TrainConfig(workload="boxes", image_size=PIXELS, batch_size=8, target=1.0)


def train_model(config: TrainConfig, workload: BoxWorkload) -> torch.nn.Module:
    """Train a model to the last example."""
    training = Training(config, workload)
    for _ in training.laps():
        pass
    return training.model


def save_source(folder: Path) -> Path:
    """Train the detector of shelves, and save its weights as a run does."""
    workload = load_workload(SHELF)
    assert isinstance(workload, BoxWorkload)
    model = train_model(SHELF, workload)
    print(f"source: mAP@.5 {measure_precision(workload, model).at_50:.3f} on its own products", flush=True)
    save_run_weights(folder, model, workload.classes)
    return folder


def main() -> None:
    """Train from the detector of shelves and from nothing in each round, and print a line for each."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-examples", type=int, nargs="+", default=[320, 640, 1600])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        source = save_source(Path(folder))
        for seed in range(arguments.rounds):
            for count in arguments.max_examples:
                compare_starts(seed, count, source)


def compare_starts(seed: int, max_examples: int, source: Path) -> None:
    """Print the precision after training from the source, with the body at two rates, and from nothing."""
    starts = {"from nothing": {}, "from shelf": {"init_from": str(source)}}
    starts["from shelf, body at the full rate"] = {"init_from": str(source), "body_lr_scale": 1.0}
    with TemporaryDirectory() as data:
        save_hand_labelled_shelves(Path(data), seed)
        config = replace(FEW, data=data, seed=seed, max_examples=max_examples, eval_every=max_examples)
        workload = with_clean_test(boxes(config))
        for name, options in starts.items():
            precision = measure_precision(workload, train_model(replace(config, **options), workload))
            print(
                f"seed {seed}, {max_examples} examples of {len(workload.train)} pictures, {name}:"
                f" mAP {precision.overall:.3f}, mAP@.5 {precision.at_50:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
