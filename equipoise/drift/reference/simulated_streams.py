"""Streams of images without drift, drawn from the images of a reference: thresholds are calibrated on them.

Where several conditions are known, some streams show one of them alone and the others mix all of them in runs, so that
what holds on average over the streams holds for such mixes.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from equipoise.drift.charts.cell_statistics import ClassStatistics, ImageFeatures, fit_cell_statistics
from equipoise.drift.charts.cusum import StepSums
from equipoise.type_aliases import AnyArray

STREAM_COUNT = 256
REFERENCE_COUNT = 32  # bootstrap references, each for some of the streams


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """Features of reference images, with what each image truly shows."""

    features: ImageFeatures
    """features, assigned to conditions as those of requests are"""
    labels: NDArray[np.int64]
    """(images,) true classes: runs are of true classes, and a model errs in its own way on each"""
    origins: NDArray[np.int64] | None = None
    """(images,) conditions that the images come from; None where one is known"""

    def select(self, indices: NDArray[np.int64]) -> "LabelledFeatures":
        """Return the images of the given indices."""
        origins = None if self.origins is None else self.origins[indices]
        return LabelledFeatures(self.features.select(indices), self.labels[indices], origins)

    @property
    def condition_count(self) -> int:
        """Number of conditions that the images come from."""
        return 1 if self.origins is None else int(self.origins.max()) + 1

    @property
    def run_groups(self) -> NDArray[np.int64]:
        """Index of the origin and true class of each image: a run is of one of each."""
        if self.origins is None:
            return self.labels
        return self.origins * (int(self.labels.max()) + 1) + self.labels


@dataclass(frozen=True, eq=False)
class SimulatedStreams:
    """Streams of images drawn from a reference without end, each compared with a reference drawn anew."""

    images: LabelledFeatures
    scores: NDArray[np.float32]
    """(references x images, charted statistics)"""
    cell_fourier_means: NDArray[np.float32]
    """(references, cells, Fourier features)"""
    counts: NDArray[np.float64]
    """(streams, cells) resampled number of reference images of each cell"""
    trace: NDArray[np.float64]
    """(streams, cells) mean squared residual of the Fourier features"""
    reference_indices: NDArray[np.int64]
    """(streams,) reference that each stream is compared with"""
    class_run_length: float
    """images of one class and condition in a row, on average"""
    last_images: NDArray[np.int64]
    """(streams,) last image drawn for each stream"""
    resamples: NDArray[np.int64] | None = None
    """(streams, images) image that takes the place of each, another one of its run group; None: each is itself"""

    @classmethod
    def from_bootstrap(
        cls,
        images: LabelledFeatures,
        class_statistics: ClassStatistics,
        class_run_length: float,
        rng: np.random.Generator,
    ) -> "SimulatedStreams":
        """Create streams compared with bootstrap references: images of each cell drawn with replacement."""
        cell_count, image_count = len(class_statistics.counts), len(images.features)
        class_count = cell_count // images.condition_count
        references = [
            fit_cell_statistics(bootstrap_images(images.features, rng), class_count, images.condition_count)
            for _ in range(REFERENCE_COUNT)
        ]
        counts = rng.multinomial(image_count, class_statistics.counts / image_count, REFERENCE_COUNT)
        return cls.from_references(references, counts.astype(np.float64), images, class_run_length, rng)

    @classmethod
    def from_references(
        cls,
        references: list[ClassStatistics],
        counts: AnyArray,
        images: LabelledFeatures,
        class_run_length: float,
        rng: np.random.Generator,
    ) -> "SimulatedStreams":
        """Create streams of the given images, compared with several references of `counts` (references, cells)."""
        features, reference_indices = images.features, np.arange(STREAM_COUNT) % len(references)
        trace = np.stack([reference.trace for reference in references])
        streams = cls(
            images=images,
            scores=np.concatenate([reference.scores(features) for reference in references]).astype(np.float32),
            cell_fourier_means=np.stack([reference.waves for reference in references]).astype(np.float32),
            counts=counts[reference_indices],
            trace=trace[reference_indices],
            reference_indices=reference_indices,
            class_run_length=class_run_length,
            last_images=np.zeros(STREAM_COUNT, np.int64),
        )
        return replace(streams, last_images=streams.draw_leaders(1, rng)[:, 0])

    def draw_step_sums(self, step_size: int, rng: np.random.Generator) -> StepSums:
        """Draw the next step of images of each stream and return its sums."""
        features, cell_count = self.images.features, self.cell_fourier_means.shape[1]
        indices = self.draw_image_indices(step_size, rng)
        rows = np.arange(STREAM_COUNT)[:, None]
        image_counts = np.bincount(
            (rows * cell_count + features.cells[indices]).ravel(), minlength=STREAM_COUNT * cell_count
        )
        counts = image_counts.reshape(STREAM_COUNT, cell_count).astype(np.float64)
        expected_sums = np.einsum("sc,scw->sw", counts, self.cell_fourier_means[self.reference_indices])
        scores = sum_table_rows(indices + self.reference_indices[:, None] * len(features), self.scores)
        return StepSums(counts, scores, sum_table_rows(indices, features.fourier_features) - expected_sums)

    def draw_image_indices(self, step_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw (streams, step size) image indices; while a run goes on, of the same group as the image before."""
        indices = np.concatenate([self.last_images[:, None], self.draw_leaders(step_size, rng)], 1)
        starts = rng.random(indices.shape) < 1 / self.class_run_length
        starts[:, 0] = True
        start_of_run = np.maximum.accumulate(np.where(starts, np.arange(step_size + 1), 0), 1)
        leader = np.take_along_axis(indices, start_of_run, 1)
        groups = self.images.run_groups
        members, firsts, counts = sort_by_group(groups)
        leader_groups = groups[leader]
        drawn = members[firsts[leader_groups] + (rng.random(indices.shape) * counts[leader_groups]).astype(np.int64)]
        if self.resamples is not None:
            drawn = self.resamples[np.arange(STREAM_COUNT)[:, None], drawn]
        self.last_images[:] = drawn[:, -1]
        return np.asarray(drawn[:, 1:])

    def draw_leaders(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw (streams, count) images that may begin a run: of any condition, or of the one that a stream shows."""
        if self.images.origins is None:
            return rng.integers(0, len(self.images.labels), (STREAM_COUNT, count))
        members, firsts, counts = sort_by_group(self.images.origins)
        kinds = single_conditions(STREAM_COUNT, len(counts))[:, None]
        mixed = kinds < 0
        firsts, counts = np.where(mixed, 0, firsts[kinds]), np.where(mixed, len(members), counts[kinds])
        return np.asarray(members[firsts + (rng.random((STREAM_COUNT, count)) * counts).astype(np.int64)])


def single_conditions(stream_count: int, condition_count: int) -> NDArray[np.int64]:
    """Return (streams,) the condition that each stream shows alone, or -1 for those that mix all of them.

    Streams that are compared with one reference are of all kinds.
    """
    rounds, references = np.divmod(np.arange(stream_count), REFERENCE_COUNT)
    return (rounds + references) % (condition_count + 1) - 1


def sort_by_group(groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return image indices sorted by group, the start of each group among them, and its number of images."""
    counts = np.bincount(groups)
    return np.argsort(groups, kind="stable"), np.cumsum(counts) - counts, counts


def sum_table_rows(row_indices: NDArray[np.int64], table: NDArray[np.float32]) -> AnyArray:
    """Return for each row of indices the sum of those rows of a table."""
    ends = np.arange(len(row_indices) + 1) * row_indices.shape[1]
    incidence = csr_array(
        (np.ones(row_indices.size, np.float32), row_indices.ravel(), ends), (len(row_indices), len(table))
    )
    return np.asarray(incidence @ table, np.float64)


def resample_run_groups(images: LabelledFeatures, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return (count, images): samples of the images with replacement, of each run group as many as there are."""
    groups = images.run_groups
    members, firsts, counts = sort_by_group(groups)
    return np.asarray(members[firsts[groups] + (rng.random((count, len(groups))) * counts[groups]).astype(np.int64)])


def bootstrap_images(image_features: ImageFeatures, rng: np.random.Generator) -> ImageFeatures:
    """Draw images with replacement, as many of each cell as there are."""
    members, firsts, counts = sort_by_group(image_features.cells)
    cells = np.repeat(np.arange(len(counts)), counts)
    return image_features.select(members[firsts[cells] + (rng.random(len(members)) * counts[cells]).astype(np.int64)])
