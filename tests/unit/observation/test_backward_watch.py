"""Tests of what the watch relies on in PyTorch's engine: when its callbacks run, and for which outputs."""

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from equipoise.observation.backward_watch import BackwardWatch, current_backward_id, iterate_tensors
from tests.support.gloo import run_with_gloo
from tests.support.observed_loops import INPUTS, build_small_model, draw_batches


@dataclass
class ModelOutput:
    """Output of a model as a dataclass."""

    loss: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    text: str = ""


def watch_events(events):
    return BackwardWatch(*(lambda name=name: events.append(name) for name in ("start", "computed", "done")))


def test_events_come_in_order_around_the_gradients():
    events, model = [], build_small_model()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: events.append("gradient"))
    output = model(draw_batches(1)[0][0])
    watch_events(events).watch_output(output)
    assert events == []
    output.sum().backward()
    assert events == ["start", *["gradient"] * 4, "computed", "done"]


def test_events_come_once_for_several_outputs_and_again_for_another_pass():
    events, weight = [], torch.ones(3, requires_grad=True)
    outputs = {"a": weight * 2, "b": [weight * 3, (weight.detach(), None)]}
    watch_events(events).watch_output(outputs)
    total = outputs["a"].sum() + outputs["b"][0].sum()
    total.backward(retain_graph=True)
    assert events == ["start", "computed", "done"]
    total.backward()
    assert events == ["start", "computed", "done"] * 2


def test_pass_that_fails_leaves_the_next_one_watched():
    events, weight = [], torch.ones(3, requires_grad=True)
    watch = watch_events(events)

    def fail(_):
        raise RuntimeError("planted")

    product = weight * 2
    product.register_hook(fail)
    output = product * 3
    watch.watch_output(output)
    with pytest.raises(RuntimeError, match="planted"):
        output.sum().backward()
    assert "done" not in events and current_backward_id() is None
    events.clear()
    output = weight * 3
    watch.watch_output(output)
    output.sum().backward()
    assert events == ["start", "computed", "done"]


def test_output_that_is_a_parameter_is_left_alone():
    weight = torch.ones(3, requires_grad=True)
    watch_events([]).watch_output(weight)
    assert not weight._backward_hooks


def test_tensors_are_found_in_containers_and_dataclasses():
    tensors = [torch.tensor(float(index)) for index in range(3)]
    output = {"a": ModelOutput(tensors[0], (tensors[1],)), "b": [tensors[2], None, 4]}
    assert [float(tensor) for tensor in iterate_tensors(output)] == [0, 1, 2]
    assert list(iterate_tensors(ModelOutput)) == []


def read_gradients_at_events(bucket_views):
    """Return this worker's first weight gradient at each event of a backward pass of DDP."""
    model = DistributedDataParallel(nn.Linear(INPUTS, 1).double(), gradient_as_bucket_view=bucket_views)
    inputs = torch.full((1, INPUTS), float(dist.get_rank() + 1), dtype=torch.float64)
    gradients = {}

    def read_gradient(name):
        def read():
            gradient = model.module.weight.grad
            gradients[name] = None if gradient is None else float(gradient[0, 0])

        return read

    output = model(inputs)
    BackwardWatch(*(read_gradient(name) for name in ("start", "computed", "done"))).watch_output(output)
    output.sum().backward()
    return gradients


@pytest.mark.parametrize("bucket_views", [False, True])
def test_gradients_of_ddp_are_exchanged_between_the_two_last_events(tmp_path, bucket_views):
    first, second = run_with_gloo(2, tmp_path, read_gradients_at_events, bucket_views)
    assert first["done"] == second["done"] == 1.5  # mean of the workers' 1 and 2
    if not bucket_views:  # with views the exchange writes into the gradient as it goes on
        assert (first["computed"], second["computed"]) == (1, 2)
