"""Stages, rates and rows of a pretrained model at their limits."""

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.finetune import (
    build_lr_scales,
    effective_body_lr_scale,
    find_classifier_layer,
    freeze_stages,
    has_matching_rows,
    list_stages,
    mean_row_norm,
    rescale_reused_rows,
)
from tests.support.errors import raises_code


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
        self.head = nn.Linear(4, 3)


def test_stages_are_layers_with_the_norms_that_follow_them():
    model = Body()
    stages = list_stages(model)
    assert [(name, len(modules)) for name, modules in stages] == [
        ("norm", 1), ("stem.0", 1), ("stem.2.0", 2), ("head", 1),
    ]  # fmt: skip
    assert stages[2][1] == [model.stem[2][0], model.stem[2][1]]


def test_all_stages_but_the_last_may_be_frozen():
    model = Body()
    assert freeze_stages(model, 0) == [] and all(weight.requires_grad for weight in model.parameters())
    frozen = freeze_stages(model, 3)
    assert frozen == [model.norm, model.stem[0], *model.stem[2]]
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == {"head.weight", "head.bias"}
    with raises_code("option-range", "--freeze-stages 4", "4 stages (norm, stem.0, stem.2.0, head)"):
        freeze_stages(model, 4)
    assert freeze_stages(nn.ReLU(), 0) == []
    with raises_code("option-range", "0 stages"):
        freeze_stages(nn.ReLU(), 1)


def test_pretrained_layers_learn_at_a_tenth_and_the_classifier_at_the_full_rate():
    pretrained = TrainConfig(workload="digits", init_from="run")
    scales = build_lr_scales(Body(), pretrained, 3)
    assert {name for name, scale in scales.items() if scale == 1} == {"head.weight", "head.bias"}
    assert {scale for name, scale in scales.items() if not name.startswith("head")} == {0.1}
    assert scales.keys() == dict(Body().named_parameters()).keys()
    given = TrainConfig(workload="digits", body_lr_scale=0.25)
    assert build_lr_scales(Body(), given, 3)["stem.0.bias"] == 0.25
    assert effective_body_lr_scale(TrainConfig(workload="digits", init_from="run", body_lr_scale=0.0)) == 0


def test_equal_rates_need_no_scales_and_a_model_without_classes_has_no_body():
    for options in ({}, {"body_lr_scale": 1.0}, {"init_from": "run", "body_lr_scale": 1.0}):
        assert build_lr_scales(Body(), TrainConfig(workload="digits", **options), 3) == {}
    assert build_lr_scales(Body(), TrainConfig(workload="digits", init_from="run"), 0) == {}
    with raises_code("option-conflict", "--body-lr-scale"):
        build_lr_scales(Body(), TrainConfig(workload="digits", body_lr_scale=0.5), 0)


@pytest.mark.parametrize(
    ("old", "fits"), [(torch.ones(2, 4), True), (torch.ones(3, 4), False), (torch.ones(2, 5), False), (None, False)]
)
def test_rows_match_where_there_is_one_for_each_class(old, fits):
    assert has_matching_rows(old, torch.zeros(7, 4), ["a", "b"]) == fits


def test_reused_rows_have_half_the_norm_of_random_ones_and_no_common_part():
    rows = {"head.weight": torch.tensor([[3.0, 4.0], [1.0, 4.0]]), "head.bias": torch.tensor([5.0, 1.0])}
    scaled = rescale_reused_rows(rows, 8.0, "head.weight")
    assert scaled["head.weight"].tolist() == [[4.0, 0.0], [-4.0, 0.0]] and scaled["head.bias"].tolist() == [8.0, -8.0]
    assert mean_row_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]])) == 3
    same = rescale_reused_rows({"w": torch.ones(2, 2)}, 1.0, "w")
    assert same["w"].tolist() == [[0.0, 0.0]] * 2  # equal rows tell nothing


def test_classifier_is_the_last_layer_with_a_row_for_each_class():
    assert find_classifier_layer(Body(), 3) == "head"
    assert find_classifier_layer(nn.Sequential(nn.Linear(2, 5), nn.Conv2d(5, 3, 1)), 3) == "1"
    with raises_code("model-invalid", "(head) does not have 4 rows"):
        find_classifier_layer(Body(), 4)
    with raises_code("model-invalid", "(none)"):
        find_classifier_layer(nn.ReLU(), 2)
