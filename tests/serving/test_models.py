"""Which bundle answers, and what a swap may not do."""

import asyncio
from dataclasses import dataclass, field

import pytest
import torch
from pydantic import ValidationError

from services.limits import Limits
from services.serving.model_versions import ModelSpec
from services.serving.models import ModelRegistry, pack_batches
from tests.support.bundles import publish_run, train_short_run


@dataclass
class Kept:
    """A watcher that keeps what it is told."""

    batches: list = field(default_factory=list)
    pairs: list = field(default_factory=list)

    def on_batch(self, model, batch):
        self.batches.append(batch)

    def on_comparison(self, model, pair):
        self.pairs.append(pair)


def wanted(**paths):
    return {"digits": ModelSpec.model_validate({name: str(path) for name, path in paths.items()})}


def test_a_bundle_of_another_kind_is_no_canary_and_nothing_changes(bundles, tmp_path):
    other = publish_run(
        train_short_run(tmp_path / "run", "tests.support.workloads:with_all_variations", examples=320),
        tmp_path / "other",
    )
    loop = asyncio.new_event_loop()
    models = ModelRegistry(Limits(), loop, Kept())
    models.apply_specs(wanted(bundle=bundles[0]))
    before = models.find_model("digits").versions_by_role()
    with pytest.raises(ValueError, match="image shapes or classes differ"):
        models.apply_specs(wanted(bundle=bundles[1], canary=other))
    assert models.find_model("digits").versions_by_role() == before
    models.apply_specs(wanted(bundle=bundles[1], canary=bundles[0], share=1))
    now = models.find_model("digits").versions_by_role()
    assert now["previous"] is now["canary"] is before["current"] is not now["current"]
    loop.close()


def test_many_pictures_are_computed_by_the_batch(bundles):
    kept = Kept()

    async def ask():
        models = ModelRegistry(Limits(batch=8), asyncio.get_running_loop(), kept)
        models.apply_specs(wanted(bundle=bundles[0]))
        model = models.find_model(None)
        return await asyncio.gather(*(model.predict(torch.zeros(5, 1, 16, 16, dtype=torch.uint8)) for _ in range(9)))

    said = asyncio.run(ask())
    assert [len(one.labels) for one in said] == [5] * 9
    seen = [len(batch.images) for batch in kept.batches]
    assert sum(seen) <= 45 and max(seen) <= 8


@pytest.mark.parametrize("role", ["canary", "shadow"])
def test_two_bundles_are_compared_on_the_same_pictures(bundles, role):
    kept = Kept()
    pictures = torch.randint(0, 256, (40, 1, 16, 16), dtype=torch.uint8)

    async def ask():
        models = ModelRegistry(Limits(), asyncio.get_running_loop(), kept)
        models.apply_specs(wanted(bundle=bundles[0], **{role: bundles[1]}, share=0.5))
        model = models.find_model("digits")
        said = await asyncio.gather(*(model.predict(one[None]) for one in pictures))
        while (
            model.batcher.busy_seconds == 0 or model.pending_comparisons
        ):  # the last comparison follows the last reply
            await asyncio.sleep(0.01)
        models.apply_specs({})
        model.batcher.thread.join()
        return model, said

    model, said = asyncio.run(ask())
    other = getattr(model, role)
    answered = {one.version for one in said}
    assert answered == ({model.current, other} if role == "canary" else {model.current})
    assert 5 < len(kept.pairs) < 35  # about half: 1 in 10^6 that not
    for pair in kept.pairs:
        assert (pair.current.version, pair.other.version) == (model.current, other)
        assert not torch.equal(pair.current.scores, pair.other.scores)


def test_a_share_is_of_one_other_bundle():
    with pytest.raises(ValidationError, match="give one"):
        wanted(bundle="a", canary="b", shadow="c")


def test_back_to_the_bundle_before_loads_nothing(bundles):
    loop = asyncio.new_event_loop()
    models = ModelRegistry(Limits(), loop, Kept())
    models.apply_specs(wanted(bundle=bundles[0]))
    first = models.find_model("digits").current
    models.apply_specs(wanted(bundle=bundles[1]))
    models.apply_specs(wanted(bundle=bundles[0]))
    assert models.find_model("digits").current is first
    loop.close()


def test_requests_are_grouped_in_their_order():
    assert pack_batches([0, 1, 2, 5], [5, 3, 1, 20], 8) == [[0, 1], [2], [5]]
    assert pack_batches([], [], 8) == []
