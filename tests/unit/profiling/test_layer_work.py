"""Operations and bytes of layers are those that their shapes say."""

from dataclasses import replace

import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.profiling.layer_work import count_layer_work
from equipoise.workloads import load_workload
from tests.support.workloads import with_convolutions

CPU = torch.device("cpu")


def count_by_name(workload_name="digits", workload=None):
    config = TrainConfig(workload=workload_name)
    layers = count_layer_work(config, workload or load_workload(config), CPU)
    return {layer.name: layer for layer in layers}


def test_convolutions_and_products_have_the_operations_of_their_shapes():
    config = TrainConfig(workload="digits")
    layers = count_by_name(workload=with_convolutions(config))
    first, second, head = layers["0"], layers["2"], layers["5"]
    assert first.forward_flop == 2 * 9 * 1 * 8 * 14 * 14 and first.backward_flop == first.forward_flop
    assert second.forward_flop == 2 * 9 * 8 * 8 * 12 * 12 and second.backward_flop == 2 * second.forward_flop
    assert head.forward_flop == 2 * 8 * 12 * 12 * 10 and head.backward_flop == 2 * head.forward_flop
    assert (head.kind, head.parameter_bytes) == ("Linear", 4 * (8 * 12 * 12 * 10 + 10))
    assert (second.input_bytes, second.output_bytes) == (4 * 8 * 14 * 14, 4 * 8 * 12 * 12)
    assert layers["1"].forward_flop == 0 and layers["1"].input_bytes == first.output_bytes
    assert head.moved_bytes(2) == 2 * (3 * head.input_bytes + 2 * head.output_bytes) + 3 * head.parameter_bytes
    assert head.step_flop(5) == 5 * 3 * head.forward_flop


def test_attention_and_tied_rows_belong_to_the_module_that_computes_them():
    layers = count_by_name("text")
    context, width = 64, 64
    attention = layers["blocks.0.attention"]
    assert attention.forward_flop == 2 * 2 * context * context * width
    assert layers["blocks.1.mlp.hidden"].forward_flop == 2 * context * width * 4 * width
    vocabulary = layers["token_embedding"].parameter_bytes // 4 // width
    assert layers[""].forward_flop == 2 * context * width * vocabulary
    assert layers[""].backward_flop == 2 * layers[""].forward_flop
    assert layers["token_embedding"].forward_flop == 0


def test_layer_that_is_called_twice_counts_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(256, 256)
            self.head = nn.Linear(256, 10)

        def forward(self, images):
            return self.head(self.layer(self.layer(images.flatten(1))))

    digits = load_workload(TrainConfig(workload="digits"))
    layers = count_by_name(workload=replace(digits, model=Twice))
    assert layers["layer"].forward_flop == 2 * 2 * 256 * 256
    assert layers["layer"].input_bytes == 2 * 4 * 256
