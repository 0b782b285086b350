"""What is decided before a pipeline runs: pieces, stages, schedules; without processes."""

from itertools import combinations, pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.training.sharding.pipeline.model_trace import (
    ModelTrace,
    bind_inputs,
    build_stage_module,
    find_result,
    list_stage_inputs,
)
from equipoise.training.sharding.pipeline.piece_measurement import NodeMeasurement, measure_nodes
from equipoise.training.sharding.pipeline.pipeline_schedules import list_stage_passes
from equipoise.training.sharding.pipeline.stage_cut import cut_stages, find_weight_holders, select_nodes
from equipoise.training.sharding.pipeline.stage_partition import partition_pieces
from equipoise.training.sharding.pipeline.stage_timeline import StageSpan, align_stages
from equipoise.training.sharding.pipeline.stage_weights import place_weights, release_tensor
from equipoise.training.sharding.pipeline.tensor_layout import TensorLayout, flatten_dense
from equipoise.workloads.models import LeNet
from equipoise.workloads.text.gpt import GPT
from tests.support.errors import raises_code

CPU = torch.device("cpu")


def slowest_stage(seconds, bounds):
    return max(sum(seconds[start:end]) for start, end in pairwise(bounds))


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_partition_has_the_fastest_slowest_stage_of_all_divisions(stages):
    generator = torch.Generator().manual_seed(stages)
    for count in range(stages, 9):
        seconds = torch.randint(0, 20, (count,), generator=generator).tolist()
        divisions = [[0, *inner, count] for inner in combinations(range(1, count), stages - 1)]
        partition = partition_pieces(seconds, stages)
        assert [piece for pieces in partition for piece in pieces] == list(range(count))
        assert len(partition) == stages and all(partition)
        best = min(slowest_stage(seconds, bounds) for bounds in divisions)
        assert slowest_stage(seconds, [0, *(pieces.stop for pieces in partition)]) == best


def test_partition_refuses_fewer_pieces_than_stages():
    with pytest.raises(ValueError, match="2 pieces among 3 stages"):
        partition_pieces([1, 1], 3)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("micros", [1, 2, 7])
def test_schedules_compute_each_pass_once_and_hold_few_micro_batches(schedule, stages, micros):
    for stage in range(stages):
        passes = list_stage_passes(schedule, stage, stages, micros)
        for kind in ("forward", "backward"):
            assert [micro for pass_kind, micro in passes if pass_kind == kind] == list(range(micros))
        in_flight = largest = 0
        for kind, _ in passes:
            in_flight += 1 if kind == "forward" else -1
            assert in_flight >= 0  # each forward pass before its backward pass
            largest = max(largest, in_flight)
        assert largest == (micros if schedule == "gpipe" else min(stages - stage, micros))


def simulate_step(schedule, stages, micros, forward=1, backward=2):
    """Return the spans of each stage where messages take no time."""
    queues = [list_stage_passes(schedule, stage, stages, micros) for stage in range(stages)]
    ends, spans, clocks = {}, [[] for _ in range(stages)], [0] * stages
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                kind, micro = queue[0]
                neighbor = stage + (-1 if kind == "forward" else 1)
                if 0 <= neighbor < stages and (kind, micro, neighbor) not in ends:
                    break
                start = max(clocks[stage], ends.get((kind, micro, neighbor), 0))
                clocks[stage] = ends[kind, micro, stage] = start + (forward if kind == "forward" else backward)
                spans[stage].append(StageSpan(start, clocks[stage], kind, micro))
                queue.pop(0)
    return spans


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_bubble_of_equal_stages_is_the_closed_form(schedule):
    for stages, micros in ((2, 4), (3, 8), (4, 4)):
        spans = simulate_step(schedule, stages, micros)
        end = max(span.end for stage in spans for span in stage)
        assert end == 3 * (micros + stages - 1)
        for own in spans:
            busy = sum(span.end - span.start for span in own)
            assert 1 - busy / end == pytest.approx((stages - 1) / (micros + stages - 1))


def test_stages_are_set_in_line_where_the_first_value_arrives():
    spans = simulate_step("1f1b", 3, 4)
    ahead = [[span._replace(start=span.start + stage * 7, end=span.end + stage * 7) for span in own]
             for stage, own in enumerate(spans)]  # fmt: skip
    waiting = [[StageSpan(own[0].start - 2, own[0].start, "wait", 0), *own] for own in ahead]
    aligned = align_stages(waiting)
    expected = [(stage, span.kind, span.micro, span.start, span.end) for stage, own in enumerate(spans) for span in own]
    assert [(s.stage, s.kind, s.micro, s.start, s.end) for s in aligned if s.kind != "wait"] == expected
    assert align_stages([[], spans[0]]) == ()


class SkippingModel(nn.Module):
    """Model with a connection past its middle layers, whose first layer draws random numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x, scale=None):
        x = F.dropout(self.first(x), 0.5, self.training)
        y = torch.relu_(self.second(x))
        x = self.third(x + y)
        return x if scale is None else x * scale


def test_a_cut_leaves_one_value():
    trace = ModelTrace(SkippingModel(), torch.randn(2, 4))
    assert [str(trace.nodes[cut]) for cut in trace.list_cuts()] == ["dropout", "second", "third"]
    scaled = ModelTrace(SkippingModel(), {"x": torch.randn(2, 4), "scale": torch.ones(())})
    assert [str(scaled.nodes[cut]) for cut in scaled.list_cuts()] == ["dropout", "second", "third", "mul"]
    lenet = ModelTrace(LeNet(10, 1, 16), torch.randn(2, 1, 16, 16))
    assert len(lenet.list_cuts()) == len(lenet.nodes) - 1 == 11
    gpt = ModelTrace(GPT(11, 8, 2, 16, 2), torch.zeros(2, 8, dtype=torch.long))
    assert [str(gpt.nodes[cut]) for cut in gpt.list_cuts()][-4:] == ["blocks_0", "blocks_1", "norm", "linear"]


def no_autocast():
    return torch.autocast("cpu", enabled=False)


def measure_model(model, inputs):
    trace = ModelTrace(model, inputs)
    targets = torch.zeros(2, dtype=torch.long)
    named = bind_inputs(model, inputs)
    return trace, measure_nodes(trace, named, lambda result: F.cross_entropy(result, targets), CPU, no_autocast)


def test_measurement_changes_nothing_and_finds_random_draws():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(6, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    _, measurements = measure_model(model, torch.randn(2, 4, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [node.draws_numbers for node in measurements] == [False, False, False, True, False]
    assert all(node.seconds > 0 for node in measurements)
    assert measurements[0].layout == TensorLayout((2, 6), (6, 1), torch.float32)


def test_stages_compute_what_the_model_computes():
    model = GPT(11, 8, 2, 16, 2)
    tokens = torch.randint(0, 11, (2, 8), generator=torch.Generator().manual_seed(3))
    trace = ModelTrace(model, tokens)
    layout = TensorLayout((2, 8, 16), (128, 16, 1), torch.float32)
    integers = {"getattr_1", "getitem", "getattr_2", "arange"}
    measurements = [NodeMeasurement(1.0, False, None if str(node) in integers else layout) for node in trace.nodes]
    boundaries = cut_stages(trace, measurements, 3)
    value, expected = None, model(tokens)
    for stage in range(3):
        cuts = [trace.find_cut_source(boundary.node) for boundary in boundaries]
        received = trace.nodes[cuts[stage - 1]] if stage else None
        result = find_result(trace.train_graph) if stage == 2 else trace.nodes[cuts[stage]]
        module = build_stage_module(model, select_nodes(trace.nodes, boundaries, stage), received, result)
        names = list_stage_inputs(module)
        assert names == ([] if stage else ["tokens"])
        value = module(*([] if value is None else [value]), *([tokens] if names else []))
    assert torch.equal(value, expected)
    places = place_weights(model, trace, boundaries)
    assert places["token_embedding.weight"].holders == (0, 2)
    assert places["position_embedding.weight"].holders == (0,)
    assert {place.holders for place in places.values()} == {(0,), (1,), (0, 2)}


def test_weights_that_no_layer_uses_belong_to_the_first_stage_and_released_ones_keep_their_shape():
    model = SkippingModel()
    model.idle = nn.Linear(3, 3)
    model.register_buffer("count", torch.zeros(5), persistent=False)
    trace, measurements = measure_model(model, torch.randn(2, 4))
    boundaries = cut_stages(trace, measurements, 2)
    assert find_weight_holders(trace, boundaries, [["idle.weight"], ["third.weight"]]) == [(0,), (1,)]
    for name in ("third.weight", "count"):
        release_tensor(model, name)
    assert model.third.weight.is_meta and model.third.weight.shape == (2, 4) and model.count.is_meta
    assert "count" not in model.state_dict()


def test_frozen_layers_need_no_gradients_of_their_values():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    model[0].requires_grad_(False)
    assert ModelTrace(model, torch.randn(2, 4)).list_gradients() == [False, True, True]


class BranchingModel(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class DrawingModel(nn.Module):
    def forward(self, x):
        return x * float(torch.rand(()))


class UnequalModes(nn.Module):
    def forward(self, x):
        return torch.relu(x) if self.training else torch.tanh(x)


@pytest.mark.parametrize(
    ("model", "reason"),
    [(BranchingModel(), "trace"), (DrawingModel(), "random numbers"), (UnequalModes(), "evaluation mode")],
)
def test_models_that_cannot_be_traced_are_refused(model, reason):
    with raises_code("sharding-unusable", reason, "--sharding"):
        ModelTrace(model, torch.randn(2, 4))


def test_more_stages_than_pieces_are_refused_with_the_number_of_pieces():
    trace, measurements = measure_model(SkippingModel(), torch.randn(2, 4))
    with raises_code("sharding-unusable", "into 5 stages", "has 4 pieces", "pipeline:4"):
        cut_stages(trace, measurements, 5)


def test_layouts_survive_as_numbers_and_keep_memory_formats():
    images = torch.randn(2, 3, 4, 5, dtype=torch.float64).to(memory_format=torch.channels_last)
    layout = TensorLayout.read(images)
    assert TensorLayout.from_row(layout.to_row()) == layout and layout.nbytes == images.nbytes
    copy = layout.allocate(CPU)
    flatten_dense(copy).copy_(flatten_dense(images))
    assert torch.equal(copy, images) and copy.stride() == images.stride()
    assert layout.arrange(images) is images
    expanded = torch.randn(3, 1).expand(3, 4)
    assert torch.equal(TensorLayout.read(expanded).arrange(expanded), expanded)
    with pytest.raises(ValueError, match="hand on a tensor of"):
        layout.arrange(images[:1])
