"""Tests of the callback for Lightning's Trainer, against gradients that are computed by hand."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from equipoise.number_bounds import MIN_LEARNING_RATE
from equipoise.observation.profiling.loop_profiler import PROFILED_BLOCK_STEPS
from equipoise.runs.folder import read_record
from tests.support.errors import raises_code
from tests.support.observed_loops import (
    BATCH,
    SMALL_MODEL_OPERATIONS,
    build_small_model,
    compute_gradient,
    draw_batches,
    list_operations,
    read_profile,
)

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed: make test-frameworks")


class SmallModule(lightning.LightningModule):
    """Module whose training step does not call the module itself, as most do not."""

    def __init__(self, failing_batch=None):
        super().__init__()
        self.network, self.failing_batch = build_small_model(), failing_batch

    def training_step(self, batch, index):
        if index == self.failing_batch:
            raise KeyError("planted")
        return F.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", F.cross_entropy(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=MIN_LEARNING_RATE)


def fit(tmp_path, batches, module=None, accumulation=1, epochs=1, **options):
    """Train on batches, which a loader yields as they are, and return the callback."""
    from equipoise.callbacks.lightning import EquipoiseCallback

    callback = EquipoiseCallback(tmp_path / "run", batch_size=BATCH, noise_scale_every=1, **options)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        accumulate_grad_batches=accumulation,
        gradient_clip_val=0.1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    loader = DataLoader(batches, batch_size=None)
    trainer.fit(module or SmallModule(), loader, DataLoader(draw_batches(2, seed=9), batch_size=None))
    return callback


def test_laps_hold_the_steps_of_the_trainer_and_the_metric_of_each_validation(tmp_path):
    callback = fit(tmp_path, draw_batches(5), epochs=2, metric="val_loss", target=0.0, lower_is_better=True)
    record = read_record(tmp_path / "run" / "record.json")
    assert [(lap.step, lap.steps, lap.seen) for lap in record.laps] == [(5, 5, 5 * BATCH), (10, 5, 10 * BATCH)]
    assert all(lap.metric > 0 and lap.data_seconds > 0 and lap.compute_seconds > 0 for lap in record.laps)
    assert (record.status, record.config.name, record.lower_is_better) == ("max_examples", "SmallModule", True)
    expected = (
        sum(float(F.cross_entropy(build_small_model()(inputs), labels)) for inputs, labels in draw_batches(5)) / 5
    )
    assert record.laps[0].loss == pytest.approx(expected, rel=1e-6)
    assert callback.observer.record == record


def test_norms_of_accumulated_gradients_are_those_computed_by_hand(tmp_path):
    batches = draw_batches(6)
    (lap,) = fit(tmp_path, batches, accumulation=2).observer.laps
    rows = torch.stack([compute_gradient(build_small_model(), batch) for batch in batches[2:]])
    assert lap.local_norm == pytest.approx(float(rows.square().sum(1).mean()), rel=1e-9)
    pairs = rows.view(2, 2, -1).mean(1)
    assert lap.total_norm == pytest.approx(float(pairs.square().sum(1).mean()), rel=1e-9)
    assert (lap.steps, lap.draws, lap.total_batch) == (3, 2, 2 * BATCH)


def test_failure_of_a_training_step_is_the_reason_of_the_record(tmp_path):
    with pytest.raises(KeyError):
        fit(tmp_path, draw_batches(4), module=SmallModule(failing_batch=2))
    record = read_record(tmp_path / "run" / "record.json")
    assert (record.status, record.reason, record.laps[-1].step) == ("failed", "KeyError: 'planted'", 2)


def test_metric_that_the_validation_does_not_log_is_refused(tmp_path):
    with raises_code("option-choice", "val_loss"):
        fit(tmp_path, draw_batches(2), metric="accuracy")


def test_profile_has_the_operations_of_layers_that_the_training_step_calls(tmp_path):
    fit(tmp_path, draw_batches(PROFILED_BLOCK_STEPS + 12), lap_steps=4, profile_steps=2)
    report = read_profile(tmp_path / "run")
    assert [layer.name for layer in report.layers] == ["network.0", "network.1", "network.2"]
    assert list_operations(report.layers) == SMALL_MODEL_OPERATIONS
    assert report.limits and report.steps.traced_steps == 2
