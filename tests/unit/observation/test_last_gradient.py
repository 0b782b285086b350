"""Tests of which parameter is found to get its gradient last, and of what DDP does after that."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from equipoise.observation.observer import observe
from tests.support.gloo import run_with_gloo
from tests.support.observed_loops import BATCH, build_small_model, draw_batches, take_steps


def list_hooked(model):
    return [name for name, parameter in model.named_parameters() if parameter._post_accumulate_grad_hooks]


@pytest.fixture
def model():
    return build_small_model()


@pytest.fixture
def observer(model, tmp_path):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run", lap_steps=2) as observer:
        yield observer


def test_one_hook_on_the_last_gradient_stays_after_the_first_pass(observer, model):
    order = []
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda _, name=name: order.append(name))
    assert len(list_hooked(model)) == 4
    take_steps(model, observer.optimizer, draw_batches(1))
    assert list_hooked(model) == [order[-1]]
    output = model(draw_batches(1)[0][0])
    assert not output._backward_hooks
    observer.close()
    assert list_hooked(model) == []


def test_all_gradients_are_watched_for_good_after_a_pass_that_does_not_reach_the_last(observer, model):
    take_steps(model, observer.optimizer, draw_batches(2))
    model[0].requires_grad_(False)
    take_steps(model, observer.optimizer, draw_batches(2), accumulation=2)
    assert list_hooked(model) == ["2.weight", "2.bias"]
    take_steps(model, observer.optimizer, draw_batches(4), accumulation=2)
    assert list_hooked(model) == ["2.weight", "2.bias"]
    assert observer.laps[-1].data_seconds > 0 and observer.laps[-1].steps == 2


def watch_sends(folder, finds_unused):
    """Return the events of three steps of DDP: the observer's clock, and the buckets that DDP sends."""
    model = DistributedDataParallel(build_small_model(), find_unused_parameters=finds_unused)
    events = []

    def send(_, bucket):
        events.append("send")
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    model.register_comm_hook(None, send)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"batch_size": BATCH, "out": folder / "run", "noise_scale_every": 2}
    with observe(model, optimizer, **options) as observer:
        mark = observer.clock.timer.mark
        observer.clock.timer.mark = lambda: (events.append("mark"), mark())[1]
        for batch in draw_batches(3, seed=dist.get_rank()):
            model(batch[0]).sum().backward()
            events.append("returned")
            optimizer.step()
        names = [name for name, _, _ in observer.clock.timer.spans]
    return events, names


@pytest.mark.parametrize("finds_unused", [False, True])
def test_last_bucket_of_ddp_is_sent_in_the_exchange(tmp_path, finds_unused):
    for events, names in run_with_gloo(2, tmp_path, watch_sends, tmp_path, finds_unused):
        assert [name for name in names if name != "data"] == ["compute", "exchange", "compute"] * 3
        parts = " ".join(events).split("returned")[:3]
        for part in parts:  # of the marks in a backward pass one precedes the last bucket, and one follows it
            assert part.split()[-3:] in (["mark", "send", "mark"], ["send", "mark", "mark"])
        assert parts[1].split()[-3:] == ["mark", "send", "mark"]  # without a measurement of norms
