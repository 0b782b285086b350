"""Memory of parts of the weights, and what a server does with gradients, without messages."""

import threading

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.parameter_store.part_buffer import HEADER_BYTES, MessageKind, PartBuffer, build_header
from equipoise.parameter_store.servers.receivers import BufferPool
from equipoise.parameter_store.servers.reply_outbox import encode_state
from equipoise.parameter_store.servers.server_messages import PushedPart
from equipoise.parameter_store.servers.server_part import ServerPart
from equipoise.parameter_store.store_client import fill_views

CONFIG = TrainConfig(workload="digits", workers=3, momentum=0.0, weight_decay=0.0).with_defaults()


def build_parameters():
    transposed = torch.arange(6.0, dtype=torch.float64).view(2, 3).t()
    return {"first": nn.Parameter(torch.ones(2, dtype=torch.float64)), "second": nn.Parameter(transposed)}


def test_numbers_of_all_parameters_follow_the_header_in_one_message():
    tensors = list(build_parameters().values())
    buffer = PartBuffer(tensors)
    buffer.copy_from(tensors)
    assert len(buffer.message) == HEADER_BYTES + 8 * 8 and HEADER_BYTES == 64
    assert [view.stride() for view in buffer.views] == [(1,), (1, 3)]
    assert buffer.values.tolist() == [1, 1, 0, 1, 2, 3, 4, 5]  # in the order of memory
    buffer.message[HEADER_BYTES:].view(torch.float64)[3] = 7
    assert buffer.views[1][1, 0] == 7


@pytest.mark.parametrize(("ticket", "version"), [(None, 0), (0, 0), (17, 5), (2**40, 2**41)])
def test_header_says_what_a_message_is(ticket, version):
    buffer = PartBuffer([torch.zeros(3)])
    buffer.write_header(MessageKind.PUSH, ticket, version)
    assert (buffer.kind, buffer.ticket, buffer.version) == (MessageKind.PUSH, ticket, version)
    assert not buffer.values.any()


def test_header_without_a_ticket_is_one_of_version_nought():
    buffer = PartBuffer([torch.zeros(3)])
    buffer.write_header(MessageKind.WEIGHTS, 3, 4)
    buffer.write_header(MessageKind.WEIGHTS)
    assert (buffer.ticket, buffer.version) == (None, 0)
    alone = build_header(MessageKind.CLOSE)
    assert alone.dtype == torch.uint8 and alone.view(torch.int64).tolist() == [MessageKind.CLOSE, -1, *[0] * 6]


def test_missing_gradients_are_zero_and_those_in_place_are_left():
    views = [torch.full((2,), 5.0) for _ in range(3)]
    fill_views(views, [None, views[1], torch.tensor([1.0, 2.0])])
    assert [view.tolist() for view in views] == [[0, 0], [5, 5], [1, 2]]
    fill_views(views, [views[0], views[1], None])
    assert [view.tolist() for view in views] == [[0, 0], [5, 5], [0, 0]]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("averages", [False, True])
def test_gradients_are_added_and_divided(count, averages):
    part = ServerPart(CONFIG, build_parameters(), {})
    pushed = [torch.arange(8.0, dtype=torch.float64) * 10**index for index in range(count)]
    part.sum_gradients(pushed, count if averages else 1)
    expected = torch.stack(pushed).sum(0) / (count if averages else 1)
    torch.testing.assert_close(part.gradients.values, expected)
    assert all(p.grad is view for p, view in zip(part.parameters, part.gradients.views, strict=True))
    torch.testing.assert_close(part.measure_norms(), torch.stack([expected[:2].norm(), expected[2:].norm()]))
    before = part.weights.values.clone()
    part.update(0.5)
    torch.testing.assert_close(part.weights.values, before - 0.5 * expected)


@pytest.mark.parametrize(("norm", "factor"), [(2.0, 1.0), (10.0, 0.5)])
def test_gradients_are_clipped_by_the_norm_of_all_keys(norm, factor):
    part = ServerPart(TrainConfig(workload="digits", clip_norm=5.0).with_defaults(), build_parameters(), {})
    part.sum_gradients([torch.ones(8, dtype=torch.float64)], 1)
    part.clip_gradients(torch.tensor([0.6 * norm, 0.8 * norm], dtype=torch.float64))
    assert part.gradients.values.tolist() == pytest.approx([factor] * 8, rel=1e-5)


def test_part_takes_its_own_keys_of_the_state_of_an_optimizer():
    parameters = build_parameters()
    config = TrainConfig(workload="digits", momentum=0.9).with_defaults()
    part = ServerPart(config, {"second": parameters["second"]}, {})
    part.sum_gradients([torch.ones(6, dtype=torch.float64)], 1)
    part.update(0.1)
    state = part.optimizer.state_dict()
    assert state and all(name.startswith("second.") for name in state)
    other = ServerPart(config, {"second": parameters["second"]}, {})
    others = {f"first.{name.rpartition('.')[2]}": torch.zeros(2, dtype=torch.float64) for name in state}
    changed = {name: nn.Parameter(value.detach() + 3) for name, value in parameters.items()}
    other.load(changed, state | others)
    assert torch.equal(other.weights.views[0], changed["second"])
    assert all(torch.equal(other.optimizer.state_dict()[name], value) for name, value in state.items())
    assert encode_state(state).dtype == torch.uint8


def test_pool_builds_memory_up_to_its_limit_and_waits_for_what_is_released():
    pool = BufferPool(lambda: PartBuffer([torch.zeros(1)]), limit=2)
    first, second = pool.take(), pool.take()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(pool.take()), daemon=True)
    thread.start()
    assert first is not second and pool.count == 2 and not taken
    PushedPart(second, pool.free).release()
    thread.join(60)
    assert taken == [second] and pool.count == 2
    PushedPart(first, None).release()  # of the own process, whose memory is not shared
    assert pool.free.empty()


def test_pool_without_a_limit_uses_free_memory_first():
    pool = BufferPool(lambda: PartBuffer([torch.zeros(1)]))
    buffers = [pool.take() for _ in range(3)]
    pool.free.put(buffers[1])
    assert pool.take() is buffers[1] and pool.count == 3
    assert pool.take() not in buffers and pool.count == 4
