"""Batches of blended examples: the partner of an example is one of its micro-batch, whichever worker computes it."""

from collections.abc import Iterator, Sequence
from itertools import count

import torch

from equipoise.config import TrainConfig
from equipoise.training.dataloader import BatchLoader, InputsAndTargets, to_channels_last
from equipoise.workloads import Workload
from equipoise.workloads.recipes.mixup import blend_inputs, blend_labels, draw_mixup, require_blendable


class MixupLoader(BatchLoader):
    """Loader of micro-batches whose examples are blended in pairs; those for evaluation stay as they are."""

    def __init__(self, config: TrainConfig, workload: Workload, device: torch.device) -> None:
        require_blendable(workload)
        super().__init__(config, workload, device)
        self.num_classes = len(workload.classes)

    def train_batches(self, micro_indices: range, step: int) -> Iterator[InputsAndTargets]:
        """Yield blended inputs and targets of this worker's micro-batches from `step` on, without end."""
        places = ((later_step, index) for later_step in count(step) for index in micro_indices)
        for place, batch in zip(places, super().train_batches(micro_indices, step), strict=False):
            yield self._blend(batch, *place)

    def load_micro_batch(self, step: int, micro_index: int) -> InputsAndTargets:
        """Return the blended inputs and targets of any micro-batch, read in this process."""
        return self._blend(super().load_micro_batch(step, micro_index), step, micro_index)

    def load_micro_batches(self, places: Sequence[tuple[int, int]]) -> Iterator[InputsAndTargets]:
        """Yield the blended micro-batches of these steps and indices in turn, which may be in any order."""
        for place, batch in zip(places, super().load_micro_batches(places), strict=True):
            yield self._blend(batch, *place)

    def _blend(self, batch: InputsAndTargets, step: int, micro_index: int) -> InputsAndTargets:
        inputs, labels = batch
        share, order = draw_mixup(self.config.seed, step, micro_index, self.config.mixup, len(labels))
        partners = torch.from_numpy(order).to(self.device)
        blended = blend_inputs(inputs, share, partners)
        targets = blend_labels(labels, share, partners, self.num_classes, self.dtype)
        return to_channels_last(blended) if self.config.channels_last else blended, targets
