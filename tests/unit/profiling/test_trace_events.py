"""A trace says how long each layer takes in both passes, and which part of a step hides the exchange."""

import pytest

from equipoise.profiling.trace_events import find_step_starts, merge_stretches, overlap_seconds, summarize_trace

THREAD, OTHER = 7, 9
NODE = "autograd::engine::evaluate_function: "


def build_event(name, start, end, thread=THREAD, **arguments):
    return {"ph": "X", "name": name, "ts": 1e6 * start, "dur": 1e6 * (end - start), "tid": thread, "args": arguments}


def summarize(events, steps=1):
    """Summarize events in the range of all steps; each step begins with a forward pass."""
    whole = build_event("part: steps", 0, 100)
    return summarize_trace([{"ph": "M", "name": "thread"}, *events, whole], steps, "layer: ", "part: ")


def test_layers_have_the_seconds_of_their_own_passes():
    summary = summarize(
        [
            build_event("part: forward", 1, 13),
            build_event("part: backward", 20, 31),
            build_event("layer: ", 1, 11),
            build_event("layer: body", 2, 8),
            build_event("aten::linear", 3, 5, **{"Sequence number": 1}),
            build_event("aten::addmm", 3, 4, **{"Sequence number": 2}),
            build_event("aten::relu", 6, 7, **{"Sequence number": 3}),
            build_event("layer: head", 8, 10),
            build_event("aten::view", 8, 9, **{"Sequence number": 3}),  # the layer before may only have looked at it
            build_event("aten::loss", 12, 13, **{"Sequence number": 4}),
            build_event(NODE + "LossBackward0", 20, 21, **{"Sequence number": 4, "Fwd thread id": 1}),
            build_event(NODE + "ViewBackward0", 21, 24, **{"Sequence number": 3, "Fwd thread id": 1}),
            build_event("aten::mm", 25, 26, **{"Sequence number": 8, "Fwd thread id": 1}),
            build_event(NODE + "AddmmBackward0", 24, 29, **{"Sequence number": 2, "Fwd thread id": 1}),
            build_event(NODE + "torch::autograd::AccumulateGrad", 29, 31),
        ],
    )
    assert summary.forward_seconds == pytest.approx({"": 2, "body": 6, "head": 2})
    assert summary.backward_seconds == pytest.approx({"": 1, "head": 3, "body": 7})
    assert summary.pass_seconds == pytest.approx(12 + 11)


def test_gradients_are_added_by_the_layer_whose_node_ran_before_in_the_same_thread():
    add = NODE + "torch::autograd::AccumulateGrad"
    summary = summarize(
        [
            build_event("part: forward", 0, 4),
            build_event("layer: a", 0, 2),
            build_event("aten::mm", 1, 2, **{"Sequence number": 1}),
            build_event("layer: b", 2, 4),
            build_event("aten::mm", 3, 4, **{"Sequence number": 2}),
            build_event(add, 5, 6),  # before any node: of no layer
            build_event(NODE + "MmBackward0", 10, 12, **{"Sequence number": 2, "Fwd thread id": 1}),
            build_event(NODE + "MmBackward0", 12, 15, thread=OTHER, **{"Sequence number": 1, "Fwd thread id": 1}),
            build_event(add, 16, 20),
            build_event(add, 17, 18, thread=OTHER),
            build_event(NODE + "UnknownBackward0", 20, 21, **{"Sequence number": 9, "Fwd thread id": 1}),
            build_event(add, 21, 30),
        ]
    )
    assert summary.backward_seconds == pytest.approx({"b": 2 + 4, "a": 3 + 1})


def test_time_between_the_nodes_of_a_backward_pass_belongs_to_the_layer_before():
    node = {"Sequence number": 1, "Fwd thread id": 1}
    summary = summarize(
        [
            build_event("part: forward", 0, 2),
            build_event("layer: a", 0, 2),
            build_event("aten::mm", 1, 2, **{"Sequence number": 1}),
            build_event("part: backward", 3, 10),
            build_event(NODE + "MmBackward0", 4, 5, **node),
            build_event(NODE + "torch::autograd::AccumulateGrad", 7, 8),  # the node before is not done before 7
            build_event("part: backward", 20, 30),  # of the next micro-batch
            build_event(NODE + "MmBackward0", 21, 22, **node),
            build_event(NODE + "MmBackward0", 21.5, 23, thread=OTHER, **node),
            build_event(NODE + "UnknownBackward0", 24, 26, **{"Sequence number": 9, "Fwd thread id": 1}),
        ]
    )
    assert summary.backward_seconds == pytest.approx({"a": (7 - 4) + (8 - 7) + (24 - 21) + 1.5})


def test_steps_that_were_interrupted_do_not_count():
    events = []
    for start, took in ((0, 2), (10, 9), (20, 2)):
        events.append(build_event("part: forward", start, start + took))
        events.append(build_event("layer: body", start, start + took))
    summary = summarize(events, steps=3)
    assert summary.forward_seconds == pytest.approx({"body": 2}) and summary.pass_seconds == pytest.approx(2)


def test_exchange_is_hidden_by_the_parts_that_it_runs_beside():
    summary = summarize(
        [
            build_event("part: data", 0, 1),
            build_event("part: forward", 1, 3),
            build_event("part: backward", 3, 6),
            build_event("gloo:all_reduce", 4, 9, thread=OTHER),
            build_event("gloo:all_reduce", 5, 8, thread=OTHER),
            build_event("part: data", 6, 8.5),
            build_event("part: forward", 10, 11),
        ],
        steps=2,
    )
    assert summary.hidden_exchange == pytest.approx(2 / 2)
    assert summary.exchange_under_data == pytest.approx(2.5 / 2)
    assert summary.step_starts == [1, 10]
    assert [span.part for span in summary.spans].count("exchange") == 2
    assert summary.spans[0] == ("data", 0, 1)


def test_stretches_that_overlap_or_touch_are_joined():
    assert merge_stretches([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert overlap_seconds([(0, 4), (5, 6)], [(1, 2), (3, 5.5)]) == pytest.approx(1 + 1 + 0.5)
    assert overlap_seconds([], [(0, 1)]) == 0


def test_steps_begin_with_the_first_of_their_forward_passes():
    assert find_step_starts([(4, 5), (0, 1), (2, 3), (6, 7)], 2) == [0, 4]
    assert find_step_starts([], 3) == []
