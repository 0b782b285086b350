"""Encoded blocks of numbers: sizes, rounding, and what no encoder may hide."""

import pytest
import torch

from equipoise.compression.block_encoders import BLOCK_ENCODERS
from equipoise.planning.exchanges.compression_cost import BLOCK_BYTES, BLOCK_NUMBERS

DTYPES = [torch.float32, torch.float64]


def encode(encoder, blocks):
    rows = torch.zeros(len(blocks), encoder.block_bytes, dtype=torch.uint8)
    encoder.encode(blocks, rows, torch.empty_like(blocks))
    return rows


def decode(encoder, rows, dtype):
    blocks = torch.empty(len(rows), BLOCK_NUMBERS, dtype=dtype)
    encoder.decode(rows, blocks)
    return blocks


def draw_blocks(dtype, blocks=5):
    generator = torch.Generator().manual_seed(0)
    scales = 10.0 ** torch.arange(-3, blocks - 3)
    return (torch.randn(blocks, BLOCK_NUMBERS, generator=generator) * scales[:, None]).to(dtype)


@pytest.mark.parametrize("name", BLOCK_ENCODERS)
def test_encoded_blocks_have_the_bytes_of_the_closed_form(name):
    encoder = BLOCK_ENCODERS[name]
    assert encoder.block_bytes == BLOCK_BYTES[name]
    rows = encode(encoder, draw_blocks(torch.float32))
    assert rows.any(1).all() and rows[:, -1].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_int8_errs_by_half_a_level_of_its_block_at_most(dtype):
    blocks, encoder = draw_blocks(dtype), BLOCK_ENCODERS["int8"]
    decoded = decode(encoder, encode(encoder, blocks), dtype)
    levels = blocks.abs().amax(1, keepdim=True) / 127
    assert decoded.dtype == dtype and ((decoded - blocks).abs() <= 0.5001 * levels).all()
    assert ((decoded - blocks).abs() > 0.4 * levels).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_bf16_rounds_as_torch_does(dtype):
    blocks, encoder = draw_blocks(dtype), BLOCK_ENCODERS["bf16"]
    assert torch.equal(decode(encoder, encode(encoder, blocks), dtype), blocks.bfloat16().to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_numbers_up_to_127_times_a_power_of_two_are_exact_in_int8(dtype):
    blocks = (torch.arange(BLOCK_NUMBERS) - 128).clamp(-127, 127).to(dtype)[None] * 2.0**-9
    encoder = BLOCK_ENCODERS["int8"]
    assert torch.equal(decode(encoder, encode(encoder, blocks), dtype), blocks)


@pytest.mark.parametrize("name", BLOCK_ENCODERS)
def test_zeros_stay_zeros_and_blocks_do_not_depend_on_each_other(name):
    blocks, encoder = draw_blocks(torch.float32), BLOCK_ENCODERS[name]
    blocks[2] = 0
    rows = encode(encoder, blocks)
    assert not decode(encoder, rows, torch.float32)[2].any()
    assert all(torch.equal(encode(encoder, block[None])[0], row) for block, row in zip(blocks, rows, strict=True))
    assert torch.equal(decode(encoder, rows[1:3], torch.float32), decode(encoder, rows, torch.float32)[1:3])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", BLOCK_ENCODERS)
def test_what_is_not_finite_does_not_decode_to_numbers(name, value):
    blocks, encoder = draw_blocks(torch.float32), BLOCK_ENCODERS[name]
    blocks[1, 7] = value
    decoded = decode(encoder, encode(encoder, blocks), torch.float32)
    assert not decoded[1].isfinite().all() and decoded[[0, 2, 3, 4]].isfinite().all()


def test_numbers_too_small_for_a_scale_decode_to_zero():
    blocks, encoder = torch.full((1, BLOCK_NUMBERS), 3e-43), BLOCK_ENCODERS["int8"]
    assert not decode(encoder, encode(encoder, blocks), torch.float32).any()


def test_smallest_scale_is_still_used():
    blocks, encoder = torch.full((1, BLOCK_NUMBERS), 127 * torch.finfo(torch.float32).tiny), BLOCK_ENCODERS["int8"]
    assert torch.equal(decode(encoder, encode(encoder, blocks), torch.float32), blocks)
    assert not decode(encoder, encode(encoder, blocks * 0.99), torch.float32).any()
