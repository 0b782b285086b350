import pytest

from equipoise.errors import EquipoiseError
from equipoise.planning.sharding.step_seconds import (
    ExchangeLinks,
    LinkTimes,
    WorkerTimes,
    bucketed_step_seconds,
    full_step_seconds,
    optimizer_step_seconds,
    pipeline_bubble,
    pipeline_step_seconds,
    ring_seconds,
    tensor_step_seconds,
)
from equipoise.training.sharding.optimizer.weight_owners import gather_traffic
from equipoise.training.sharding.pipeline.pipeline_schedules import StagePass, list_stage_passes

WORKER = WorkerTimes(1.0, 2.0, 0.5)
LINK = LinkTimes(0.01, 1e-3)
FREE = LinkTimes(0.0, 0.0)
LINKS = ExchangeLinks(LINK, LinkTimes(0.02, 2e-3), LINK)


def simulate_pipeline(stage_seconds, transfers, micros, schedule="1f1b"):
    """Return when the last pass of a schedule ends, pass by pass; a third of a stage's seconds are forward."""
    stages = len(stage_seconds)
    queues = [list_stage_passes(schedule, stage, stages, micros) for stage in range(stages)]
    free, ended = [0.0] * stages, {}
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                kind, micro = queue[0]
                step = -1 if kind == "forward" else 1
                source = stage + step
                arrival = 0.0
                if 0 <= source < stages:
                    if (source, StagePass(kind, micro)) not in ended:
                        break
                    arrival = ended[source, StagePass(kind, micro)] + transfers[min(stage, source)]
                seconds = stage_seconds[stage] * (1 / 3 if kind == "forward" else 2 / 3)
                free[stage] = ended[stage, queue.pop(0)] = max(free[stage], arrival) + seconds
    return max(free)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("micros", [1, 4, 9])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_equal_stages_wait_for_the_bubble(stages, micros, schedule):
    seconds = pipeline_step_seconds([3.0] * stages, [0.0] * (stages - 1), micros, FREE)
    assert seconds == pytest.approx((micros + stages - 1) * 3.0)
    assert seconds == pytest.approx(simulate_pipeline([3.0] * stages, [0.0] * (stages - 1), micros, schedule))
    assert pipeline_bubble(stages, micros) == pytest.approx(1 - micros * 3.0 / seconds)


@pytest.mark.parametrize(
    ("stage_seconds", "transfers"),
    [
        ([3.0, 3.0], [0.6]),
        ([3.0, 2.0], [0.3]),
        ([2.0, 3.0], [0.3]),
        ([3.0, 3.0, 3.0, 3.0], [0.2, 0.2, 0.2]),
        ([2.5, 3.0, 2.8, 2.9], [0.2, 0.1, 0.3]),
        ([3.0, 3.0], [6.0]),
    ],
)
def test_transfers_that_no_stage_hides_follow_the_schedule(stage_seconds, transfers):
    link = LinkTimes(0.0, 1.0)
    for micros in (4, 8, 16):
        simulated = simulate_pipeline(stage_seconds, transfers, micros)
        assert pipeline_step_seconds(stage_seconds, transfers, micros, link) == pytest.approx(simulated, rel=0.03)


def test_a_pipeline_has_a_boundary_less_than_stages():
    with pytest.raises(EquipoiseError) as refused:
        pipeline_step_seconds([1.0, 1.0], [], 4, LINK)
    assert refused.value.code == "option-range"


def test_backward_hides_all_buckets_but_the_last():
    one = bucketed_step_seconds(WORKER, [400.0], 2, 1, LINK)
    assert one == pytest.approx(3.0 + 0.02 + 0.4 + 0.5)
    hidden = bucketed_step_seconds(WORKER, [200.0, 200.0], 2, 1, LINK)
    assert hidden == pytest.approx(3.0 + 0.02 + 0.2 + 0.5)
    slow = bucketed_step_seconds(WORKER, [200.0, 200.0], 2, 1, LinkTimes(0.0, 1.0))
    assert slow == pytest.approx(1.0 + 1.0 + 400.0 + 0.5)  # starts when half of backward is done
    assert bucketed_step_seconds(WORKER, [400.0], 1, 3, LINK) == pytest.approx(3 * 3.0 + 0.5)


def test_full_sharding_gathers_twice_and_sums_once_a_micro_step():
    gathers, sums = 2 * 2 * (2 * 0.01 + 3 / 4 * 1000 * 1e-3), 2 * (2 * 0.02 + 3 / 4 * 1000 * 2e-3)
    seconds = full_step_seconds(WORKER, [600.0, 400.0], 4, 2, LINKS)
    assert seconds == pytest.approx(2 * 3.0 + gathers + sums + 0.5 / 4)
    replicated = full_step_seconds(WORKER, [600.0, 400.0], 4, 2, LINKS, replicas=2)
    assert replicated - seconds == pytest.approx(2 * 2 * 0.01 + 1000 / 4 * 1e-3)
    assert full_step_seconds(WORKER, [600.0, 400.0], 4, 2, LINKS, copy_seconds=0.25) - seconds == pytest.approx(0.5)
    assert full_step_seconds(WORKER, [600.0, 400.0], 1, 2, LINKS) == pytest.approx(6.5)


@pytest.mark.parametrize("workers", [2, 4])
def test_updated_weights_take_what_leaves_the_busiest_worker(workers):
    size, parts = 400.0, [150.0, *[250.0 / (workers - 1)] * (workers - 1)]
    free_sum = bucketed_step_seconds(WORKER._replace(update=0.5 * max(parts) / size), [size], workers, 1, LINK)
    seconds = optimizer_step_seconds(WORKER, [size], parts, 1, LINKS)
    sent, rounds = gather_traffic(parts)
    assert seconds - free_sum == pytest.approx(rounds * LINK.alpha + sent * LINK.beta)


def test_an_exchange_starts_once_whatever_its_messages():
    late = LINK._replace(start=1.0)
    for workers in (2, 4, 8):
        assert ring_seconds(workers, 100, late) - ring_seconds(workers, 100, LINK) == pytest.approx(1.0)
    assert ring_seconds(1, 100, late) == 0
    early, later = (
        full_step_seconds(WORKER, [600.0, 400.0], 4, 2, LINKS._replace(gather=link)) for link in (LINK, late)
    )
    assert later - early == pytest.approx(2 * 2 * 2 * 1.0)  # two gathers of two units in each of two micro-batches


def test_tensor_sharding_divides_a_share_of_the_work():
    seconds = tensor_step_seconds(WORKER, 0.8, [100.0] * 4, 2, 3, LINK)
    assert seconds == pytest.approx(3 * (0.6 * 3.0 + 4 * (0.02 + 0.1)) + 0.6 * 0.5)
    assert tensor_step_seconds(WORKER, 1.0, [], 4, 1, FREE) == pytest.approx(3.5 / 4)
