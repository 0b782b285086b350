"""Which layers are divided is told from a model's structure; what cannot be told safely stays whole."""

import pytest
import torch
from torch import nn

from equipoise.training.sharding.tensor.layer_division import LayerDivision, slice_sections
from equipoise.training.sharding.tensor.tensor_plan import plan_tensor_sharding
from equipoise.training.sharding.tensor_slice import join_parts
from equipoise.workloads.models import LeNet
from equipoise.workloads.text.gpt import GPT, FeedForward
from tests.support.errors import raises_code


def names_by_kind(model, parts):
    plan = plan_tensor_sharding(model, parts)
    return {kind: {layer.name for layer in plan.layers if layer.kind == kind} for kind in {*map(kind_of, plan.layers)}}


def kind_of(layer):
    return layer.kind


def test_dense_pairs_and_convolutions_are_divided():
    model = LeNet(10, 1, 16)
    assert names_by_kind(model, 2) == {"columns": {"body.7"}, "rows": {"body.9"}, "channels": {"body.0", "body.3"}}
    assert names_by_kind(model, 4)["channels"] == {"body.3"}  # six channels are too few for four
    plan = plan_tensor_sharding(model, 2)
    total = sum(value.numel() for value in model.parameters())
    whole = sum(value.numel() for name, value in model.named_parameters() if name.startswith("head")) + 84
    assert plan.share == pytest.approx(1 - whole / total)
    assert plan.describe() == f"dividing 4 layers with {plan.share:.0%} of the weights over 2 workers"


def test_heads_and_hidden_layers_of_a_gpt_are_divided():
    plan = plan_tensor_sharding(GPT(11, 12, 2, 16, 4), 2)
    assert plan.counters == ("blocks.0.attention.heads", "blocks.1.attention.heads")
    assert LayerDivision("blocks.0.attention.query_key_value", "columns", num_sections=3) in plan.layers
    assert plan.num_weighted == 8
    few_heads = plan_tensor_sharding(GPT(11, 12, 1, 16, 2), 4)
    assert {layer.name for layer in few_heads.layers} == {"blocks.0.mlp.hidden", "blocks.0.mlp.out"}


def test_of_three_dense_layers_the_largest_pair_is_divided():
    small_first = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 64), nn.Dropout(), nn.Linear(64, 64))
    assert names_by_kind(small_first, 2) == {"columns": {"2"}, "dropout": {"3"}, "rows": {"4"}}
    nested = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 4))
    assert names_by_kind(nested, 4) == {"columns": {"0.0"}, "rows": {"1"}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "vgg11"])
def test_heads_of_large_convolutional_networks_are_divided(name):
    with torch.device("meta"):
        model = getattr(pytest.importorskip("torchvision.models"), name)(num_classes=10)
    by_kind = names_by_kind(model, 4)
    largest = max(by_kind["columns"], key=lambda layer: model.get_submodule(layer).weight.numel())
    assert model.get_submodule(largest).out_features == 4096
    assert len(by_kind["columns"] | by_kind["rows"]) == 2 and len(by_kind["channels"]) > 4


class TiedModel(nn.Module):
    """Pair whose second matrix is another layer's too."""

    def __init__(self):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.other = nn.Linear(8, 8)
        self.other.weight = self.pair[2].weight

    def forward(self, x):
        return self.other(self.pair(x))


class ReversedSequence(nn.Sequential):
    """Sequence that does not do what a sequence does."""

    def forward(self, x):
        for module in reversed(self):
            x = module(x)
        return x


def build_hooked(index):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[index].register_forward_hook(lambda module, inputs, output: output * output.mean())
    return model


def build_repeated():
    norm = nn.LayerNorm(8)
    return nn.Sequential(nn.Linear(8, 8), norm, nn.Linear(8, 8), norm, nn.Linear(8, 8))


class AdaptedLinear(nn.Linear):
    """Dense layer that adds to what its class computes, as adapters do."""

    def forward(self, x):
        return super().forward(x) + x.mean()


def build_adapted():
    block = FeedForward(8)
    block.hidden = AdaptedLinear(8, 32)
    return block


@pytest.mark.parametrize(
    "model",
    [
        TiedModel(),
        build_hooked(0),
        build_hooked(1),
        build_repeated(),
        build_adapted(),
        ReversedSequence(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)),
        nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 8)),
        nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.Linear(8, 8)),
        nn.Sequential(nn.Conv2d(8, 8, 3, groups=8)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 8)),
        nn.TransformerEncoderLayer(8, 2),
    ],
    ids=[
        "tied",
        "hooked",
        "hooked-function",
        "repeated",
        "adapted",
        "reversed",
        "softmax",
        "prelu",
        "groups",
        "weight-norm",
        "transformer",
    ],
)
def test_what_cannot_be_divided_safely_is_not(model):
    with raises_code("sharding-unusable", "no convolution", "--sharding full"):
        plan_tensor_sharding(model, 2)


def test_the_largest_layer_says_why_nothing_can_be_divided():
    channels = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 4, 1))
    with raises_code("sharding-unusable", "tensor:3", "8 channels"):
        plan_tensor_sharding(channels, 3)
    heads = GPT(11, 12, 1, 16, 2).blocks[0].attention
    with raises_code("sharding-unusable", "tensor:4", "2 heads"):
        plan_tensor_sharding(heads, 4)
    with raises_code("sharding-unusable", "tensor:7", "1024 units"):
        plan_tensor_sharding(GPT(11, 12, 1, 256, 4), 7)


@pytest.mark.parametrize(("sections", "parts", "dim"), [(1, 3, 0), (3, 2, 0), (2, 2, 1), (3, 4, 1)])
def test_parts_cover_each_section(sections, parts, dim):
    whole = torch.arange(24.0 * 24).view(24, 24)
    places = [slice_sections((24, 24), dim, sections, part, parts) for part in range(parts)]
    pieces = [place.cut(whole) for place in places]
    for piece, section in zip(pieces[0].chunk(sections, dim), whole.chunk(sections, dim), strict=True):
        assert torch.equal(piece, section.chunk(parts, dim)[0])
    assert torch.equal(join_parts(zip(places, pieces, strict=True)), whole)
