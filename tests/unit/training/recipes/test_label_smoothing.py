"""Label smoothing against torch's own, in training and nowhere else."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import load_workload
from tests.support.errors import raises_code

SMOOTH = TrainConfig(workload="digits", label_smoothing=0.2, target=2.0, max_examples=640, precision="fp64")


def train_model(config, workload=None):
    training = Training(config, workload)
    for _ in training.laps():
        pass
    return training


def test_training_has_the_loss_of_torch_and_evaluation_the_metric_of_the_workload():
    smoothed = train_model(SMOOTH)
    plain = load_workload(SMOOTH)
    own_loss = replace(plain, loss=lambda logits, labels: F.cross_entropy(logits, labels, label_smoothing=0.2))
    expected = train_model(replace(SMOOTH, label_smoothing=0.0), own_loss)
    assert all(
        torch.equal(value, expected.model.state_dict()[name]) for name, value in smoothed.model.state_dict().items()
    )
    assert smoothed.workload.metric is plain.metric
    unsmoothed = train_model(replace(SMOOTH, label_smoothing=0.0))
    assert unsmoothed.finished_laps[-1].loss != smoothed.finished_laps[-1].loss


def test_tokens_of_texts_are_smoothed(tmp_path):
    config = TrainConfig(workload="text", model="gpt:1x16", batch_size=4, label_smoothing=0.1, max_examples=8)
    training = Training(config)
    inputs, targets = next(training.loader.train_batches(range(1), 0))
    scores = training.model(inputs)
    expected = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), label_smoothing=0.1)
    torch.testing.assert_close(training.workload.loss(scores, targets), expected)


def test_workloads_without_classes_have_no_labels_to_smooth(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,y\n" + "".join(f"{i % 7},{i % 13}.5\n" for i in range(200)))
    with raises_code("option-conflict", "omit --label-smoothing"):
        load_workload(TrainConfig(workload="table", data=str(table), label="y", label_smoothing=0.1))
    own = replace(load_workload(replace(SMOOTH, label_smoothing=0.0)), loss=lambda a, b: F.cross_entropy(a, b))
    with raises_code("option-conflict", "its loss is not the cross-entropy"):
        Training(SMOOTH, own)
