import pytest
import torch
from torch import nn

from equipoise.compression.encode_timing import time_encoding
from equipoise.registries.exchange_registry import parse_compression

TENSORS = [nn.Parameter(torch.zeros(64, 32)), nn.Parameter(torch.zeros(64, dtype=torch.float32))]


@pytest.mark.parametrize("text", ["bf16", "int8", "topk:0.01", "powersgd:2"])
def test_every_compression_takes_some_time(text):
    assert 0 < time_encoding(TENSORS, parse_compression(text), seconds=0.01) < 10


def test_no_compression_takes_none():
    assert time_encoding(TENSORS, parse_compression("none")) == 0
    assert time_encoding([], parse_compression("int8")) == 0
