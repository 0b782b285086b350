import math

import pytest
import torch

from equipoise.workloads.text.nats import mean_token_nats, window_nats


def test_even_scores_cost_the_logarithm_of_the_vocabulary():
    scores, targets = torch.zeros(2, 3, 7), torch.zeros(2, 3, dtype=torch.int64)
    assert float(mean_token_nats(scores, targets)) == pytest.approx(math.log(7))
    assert window_nats(scores, targets).tolist() == pytest.approx([math.log(7)] * 2)


def test_nats_are_the_negative_logarithm_of_the_probability_of_each_target():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 5, 6, generator=generator, dtype=torch.float64)
    targets = torch.randint(6, (4, 5), generator=generator)
    nats = [[-math.log(scores[i, j].softmax(0)[targets[i, j]]) for j in range(5)] for i in range(4)]
    assert window_nats(scores, targets).tolist() == pytest.approx([sum(row) / 5 for row in nats])
    assert float(mean_token_nats(scores, targets)) == pytest.approx(sum(map(sum, nats)) / 20)
