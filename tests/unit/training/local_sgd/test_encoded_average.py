"""Bytes of encoded averages beside those that a plan predicts."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.planning.exchange_choice.exchange_costs import MOMENTS_BY_OPTIMIZER, SECOND_MOMENTS_BY_OPTIMIZER
from equipoise.planning.exchanges.exchange_name import COMPRESSED_SHARES
from equipoise.training.loop import Training
from tests.support.gloo import run_with_gloo

CONFIG = TrainConfig(workload="digits", workers=2, batch_size=8, sync="local:10", target=2.0, all_reduce="backend")
CONFIGS = [
    replace(CONFIG, optimizer=optimizer, compression=compression)
    for optimizer in ("sgd", "adamw")
    for compression in ("none", "bf16", "int8")
]


def list_sent_bytes(configs):
    return [Training(config).gradient_sync.traffic.sent_bytes for config in configs]


def test_all_but_second_moments_is_encoded(tmp_path):
    size = sum(parameter.nbytes for parameter in Training(CONFIG).trainable_parameters)
    measured = run_with_gloo(2, tmp_path, list_sent_bytes, CONFIGS)[0]
    for config, sent_bytes in zip(CONFIGS, measured, strict=True):
        exact_copies = SECOND_MOMENTS_BY_OPTIMIZER[config.optimizer]
        encoded_copies = 1 + MOMENTS_BY_OPTIMIZER[config.optimizer] - exact_copies
        predicted = size * (encoded_copies * COMPRESSED_SHARES[config.compression] + exact_copies)
        assert sent_bytes == pytest.approx(predicted, rel=0.03), config  # blocks have a scale, and are filled up
