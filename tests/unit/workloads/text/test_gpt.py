import math

import pytest
import torch

from equipoise.workloads.text.gpt import GPT, INIT_STD, CausalAttention


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(vocabulary_size=79, context=64, layers=2, width=64, heads=4)


def test_number_of_weights_follows_the_formula(model):
    def count_block_weights(width):
        return 12 * width * width + 9 * width + 4 * width  # matrices, their biases, two norms

    expected = 79 * 64 + 64 * 64 + 2 * count_block_weights(64) + 2 * 64
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == 109_248


def test_no_two_parameters_share_memory(model):
    assert len({tensor.data_ptr() for tensor in model.state_dict().values()}) == len(model.state_dict())


def test_scores_depend_on_no_later_token(model):
    tokens = torch.randint(79, (1, 64), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 40:] = (tokens[0, 40:] + 1) % 79
    with torch.no_grad():
        scores, changed_scores = model(tokens), model(changed)
    assert scores.shape == (1, 64, 79)
    torch.testing.assert_close(scores[:, :40], changed_scores[:, :40])
    assert not torch.allclose(scores[:, 40:], changed_scores[:, 40:])


def test_scores_depend_on_position_and_earlier_tokens(model):
    with torch.no_grad():
        repeated = model(torch.zeros(1, 8, dtype=torch.int64))[0]
        other_start = model(torch.tensor([[1, 0, 0, 0, 0, 0, 0, 0]]))[0]
    assert not torch.allclose(repeated[0], repeated[1])
    assert not torch.allclose(repeated[7], other_start[7])


def test_shorter_texts_than_the_context_are_taken(model):
    assert model(torch.zeros(3, 1, dtype=torch.int64)).shape == (3, 1, 79)


def test_new_model_finds_all_tokens_about_as_likely(model):
    tokens = torch.randint(79, (64, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        nats = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten().roll(-1))
    assert nats == pytest.approx(math.log(79), abs=0.1)


def test_matrices_are_drawn_with_their_deviations(model):
    deep = GPT(vocabulary_size=50, context=16, layers=8, width=128, heads=4)
    for name, parameter in deep.named_parameters():
        if name.endswith(("attention.out.weight", "mlp.out.weight")):
            assert float(parameter.detach().std()) == pytest.approx(INIT_STD / 4, rel=0.05), name
        elif parameter.ndim == 2:
            assert float(parameter.detach().std()) == pytest.approx(INIT_STD, rel=0.05), name
        else:
            assert (parameter == (0 if name.endswith("bias") else 1)).all(), name


def test_attention_agrees_with_a_double_loop():
    torch.manual_seed(0)
    attention = CausalAttention(width=8, heads=2).double()
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    query, key, value = attention.query_key_value(x)[0].split(8, dim=1)
    read = torch.zeros(5, 8, dtype=torch.float64)
    for head in (slice(0, 4), slice(4, 8)):
        for position in range(5):
            weights = torch.softmax(key[: position + 1, head] @ query[position, head] / 2, dim=0)
            read[position, head] = weights @ value[: position + 1, head]
    torch.testing.assert_close(attention(x)[0], attention.out(read))
