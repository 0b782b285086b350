"""Ticks have a label where there is room for it."""

from dashboards.panels.tick_labels import MAX_TICKS, thin_ticks


def test_ticks_whose_labels_would_overlap_are_left_out():
    assert thin_ticks([10, 12, 13, 16, 17, 40]) == [10, 13, 17, 40]
    assert thin_ticks([]) == []


def test_ticks_are_few_enough_for_a_phone():
    batches = [4 * (1 + step % 2 / 2) * 2 ** (step // 2) for step in range(22)]  # 4, 6, 8, 12, 16 and so on
    assert len(thin_ticks(batches)) <= MAX_TICKS + 1
    assert [thin_ticks(batches)[0], *thin_ticks([8, 16, 32, 64])] == [4, 8, 16, 32, 64]
