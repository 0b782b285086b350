import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise.rng import derive_seed, epoch_permutation, example_uniforms, splitmix64


def test_splitmix64_matches_the_published_generator():
    assert splitmix64(0, 0) == 0xE220A8397B1DCDAF  # the first number of the published generator from seed 0
    assert int(splitmix64(np.zeros(1, np.uint64), np.zeros(1, np.uint64))[0]) == 0xE220A8397B1DCDAF


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=4))
def test_derived_seed_has_63_bits_and_depends_on_the_last_part(parts):
    assert 0 <= derive_seed(*parts) < 2**63
    assert derive_seed(*parts) != derive_seed(*parts[:-1], parts[-1] + 1)


def test_uniforms_of_an_example_do_not_depend_on_its_batch():
    epochs, examples = np.arange(50) // 20, np.arange(50) * 7 % 50
    together = example_uniforms(3, epochs, examples, 4)
    alone = [example_uniforms(3, epochs[i : i + 1], examples[i : i + 1], 4)[0] for i in range(50)]
    assert (together == np.array(alone)).all()


def test_example_uniforms_are_uniform_and_uncorrelated():
    uniforms = example_uniforms(0, np.arange(40_000) // 1000, np.arange(40_000) % 1000, 3)
    assert uniforms.min() >= 0 and uniforms.max() < 1
    histogram = np.histogram(uniforms, 20, (0, 1))[0] / uniforms.size * 20
    assert abs(histogram - 1).max() < 0.03
    assert abs(np.corrcoef(uniforms.T) - np.eye(3)).max() < 0.02
    assert abs(np.corrcoef(uniforms[:-1, 0], uniforms[1:, 0])[0, 1]) < 0.02


def test_permutation_has_every_example_once_and_changes_by_epoch_and_seed():
    first, second, other_seed = epoch_permutation(0, 0, 100), epoch_permutation(0, 1, 100), epoch_permutation(1, 0, 100)
    assert sorted(first) == sorted(second) == list(range(100))
    assert (first != second).any() and (first != other_seed).any()
    assert (first == epoch_permutation(0, 0, 100)).all()
