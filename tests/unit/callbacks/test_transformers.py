"""Tests of the callback for the Trainer of transformers, against gradients that are computed by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.number_bounds import MIN_LEARNING_RATE
from equipoise.observation.profiling.loop_profiler import PROFILED_BLOCK_STEPS
from equipoise.runs.folder import read_record
from tests.support.observed_loops import (
    BATCH,
    SMALL_MODEL_OPERATIONS,
    build_small_model,
    compute_gradient,
    draw_batches,
    list_operations,
    read_profile,
)

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-frameworks")
pytest.importorskip("accelerate", reason="accelerate is not installed: make test-frameworks")


class SmallClassifier(nn.Module):
    """Model that returns its loss and scores in a dictionary, as those of transformers do."""

    def __init__(self):
        super().__init__()
        self.network = build_small_model()

    def forward(self, inputs, labels):
        scores = self.network(inputs)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


def train(tmp_path, batches, accumulation=1, **options):
    """Train on the examples of batches in their order, and return the callback."""
    from equipoise.callbacks.transformers import EquipoiseCallback

    callback = EquipoiseCallback(tmp_path / "run", noise_scale_every=1, **options)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "checkpoints"),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=accumulation,
        learning_rate=MIN_LEARNING_RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0.1,
        num_train_epochs=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=1,
        train_sampling_strategy="sequential",
        report_to=[],
        disable_tqdm=True,
        seed=5,
    )
    examples = [
        {"inputs": row, "labels": label}
        for inputs, labels in batches
        for row, label in zip(inputs, labels, strict=True)
    ]
    trainer = transformers.Trainer(
        SmallClassifier(), arguments, train_dataset=examples, eval_dataset=examples[:BATCH], callbacks=[callback]
    )
    trainer.train()
    return callback


def test_laps_hold_the_steps_of_the_trainer_and_the_metric_of_the_evaluation(tmp_path):
    callback = train(tmp_path, draw_batches(4), metric="eval_loss", name="small")
    record = read_record(tmp_path / "run" / "record.json")
    (lap,) = record.laps
    assert (lap.step, lap.steps, lap.seen) == (4, 4, 4 * BATCH) and lap.metric > 0 and lap.loss > 0
    assert lap.data_seconds > 0 and lap.compute_seconds > 0
    assert (record.config.name, record.config.seed, record.config.optimizer) == ("small", 5, "adamw")
    assert callback.observer.record == record


def test_norms_of_accumulated_gradients_are_those_computed_by_hand(tmp_path):
    batches = draw_batches(6)
    (lap,) = train(tmp_path, batches, accumulation=2).observer.laps
    rows = torch.stack([compute_gradient(build_small_model(), batch) for batch in batches[2:]])
    local, pairs = float(rows.square().sum(1).mean()), rows.view(2, 2, -1).mean(1)
    total = float(pairs.square().sum(1).mean())
    assert lap.local_norm / lap.total_norm == pytest.approx(local / total, rel=1e-6)
    assert (lap.steps, lap.draws, lap.total_batch) == (3, 2, 2 * BATCH)


def test_profile_has_the_operations_of_layers(tmp_path):
    train(tmp_path, draw_batches(PROFILED_BLOCK_STEPS + 12), lap_steps=4, profile_steps=2)
    report = read_profile(tmp_path / "run")
    assert [layer.name for layer in report.layers] == ["network.0", "network.1", "network.2"]
    assert list_operations(report.layers) == SMALL_MODEL_OPERATIONS
