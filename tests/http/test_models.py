"""Which bundle answers, and what a swap may not do."""

import asyncio

import pytest
import torch

from services.limits import Limits
from services.models import Models, Wanted, together
from tests.bundles import published, short_run


def wanted(**paths):
    return {"digits": Wanted.model_validate({name: str(path) for name, path in paths.items()})}


def test_a_bundle_of_another_kind_is_no_canary_and_nothing_changes(bundles, tmp_path):
    other = published(short_run(tmp_path / "run", "tests.models:with_all_variations", examples=320), tmp_path / "other")
    loop = asyncio.new_event_loop()
    models = Models(Limits(), loop, lambda name, batch: None)
    models.apply(wanted(bundle=bundles[0]))
    before = models.named("digits").versions()
    with pytest.raises(ValueError, match="takes other pictures or knows other classes"):
        models.apply(wanted(bundle=bundles[1], canary=other))
    assert models.named("digits").versions() == before
    models.apply(wanted(bundle=bundles[1], canary=bundles[0], share=1))
    now = models.named("digits").versions()
    assert now["previous"] is now["canary"] is before["current"] is not now["current"]
    loop.close()


def test_many_pictures_are_computed_by_the_batch(bundles):
    seen = []

    async def ask():
        models = Models(
            Limits(batch=8), asyncio.get_running_loop(), lambda name, batch: seen.append(len(batch.pictures))
        )
        models.apply(wanted(bundle=bundles[0]))
        model = models.named(None)
        return await asyncio.gather(*(model.answer(torch.zeros(5, 1, 16, 16, dtype=torch.uint8)) for _ in range(9)))

    said = asyncio.run(ask())
    assert [len(one.labels) for one in said] == [5] * 9
    assert sum(seen) <= 45 and max(seen) <= 8


def test_requests_are_grouped_in_their_order():
    assert together([0, 1, 2, 5], [5, 3, 1, 20], 8) == [[0, 1], [2], [5]]
    assert together([], [], 8) == []
