"""The search on recorded trials of this machine: how far from the best it ends, and at what cost."""

import numpy as np
import pytest

from benchmarks.search_policies.ground_truth import REPLAY_COUNT, GroundTruth, split_seeds
from benchmarks.search_policies.replay import choose_by_search
from benchmarks.search_policies.user_habits import choose_largest_throughput


@pytest.fixture(scope="module", params=["digits", "patches"])
def replays(request):
    """The truth, and for each replay the choice, its cost, the seeds seen and the others."""
    truth = GroundTruth(request.param)
    return truth, [
        (*choose_by_search(truth, split_seeds(truth, draw)[0], draw), *split_seeds(truth, draw))
        for draw in range(REPLAY_COUNT)
    ]


def test_the_search_ends_close_to_the_best_of_the_whole_grid(replays):
    truth, choices = replays
    regrets = [truth.compute_regret(choice, seen, others) for choice, _, seen, others in choices]
    assert np.median(regrets) <= 0.03
    if truth.name == "digits":  # on patches 40 %: the best setting scatters as much, and five seeds are seen
        assert np.quantile(regrets, 0.95) <= 0.10


def test_the_search_costs_a_small_part_of_the_grid(replays):
    truth, choices = replays
    assert max(spent for _, spent, _, _ in choices) <= 0.15 * truth.grid_worker_seconds()


def test_the_largest_throughput_is_a_poor_choice_here(replays):
    truth, choices = replays
    regrets = [
        truth.compute_regret(choose_largest_throughput(truth, seen, 0, 0), seen, others) for *_, seen, others in choices
    ]
    assert np.median(regrets) >= 0.5
