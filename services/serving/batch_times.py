"""How long batches take, and so how many waiting requests the event loop may compute itself."""

from dataclasses import dataclass, field

INLINE_SECONDS = 0.002  # of computing, for which the event loop may be blocked
MIN_SAMPLES = 3  # batches of a size before its time is believed
LATEST_WEIGHT = 0.2  # of the last batch in the average
FORGET_WEIGHT = 0.002  # with each batch of another size: one that once seemed expensive is tried again some day
RECENT_BATCHES = 64  # a size measured in one of these is in use; the others follow the speed of those in use
THREAD_GAIN = 1.15  # by which larger batches must be cheaper per request to be worth the hand-over to the thread
CHEAPEST_MARGIN = 1.03  # of the cost per request, within which a smaller batch is preferred


@dataclass
class BatchTimes:
    """Running averages of the CPU seconds per request, by the size of the batch rounded up to a power of two."""

    seconds_per_request: dict[int, float] = field(default_factory=dict)
    """average by exponent of the power of two"""
    num_samples: dict[int, int] = field(default_factory=dict)
    """batches measured, by exponent"""
    num_batches: int = 0
    """batches measured, of all sizes"""
    latest_batches: dict[int, int] = field(default_factory=dict)
    """number of the latest batch, by exponent"""

    def add_batch(self, size: int, seconds: float) -> None:
        """Update the average of a batch's size, and let those of other sizes approach the cheapest."""
        exponent = size_exponent(size)
        cheapest = min(self.seconds_per_request.values(), default=0.0)
        for other, average in self.seconds_per_request.items():
            self.seconds_per_request[other] = average + FORGET_WEIGHT * (cheapest - average)
        num_earlier = self.num_samples.get(exponent, 0)
        weight = max(LATEST_WEIGHT, 1 / max(1, num_earlier))  # the second replaces the first, which allocates memory
        earlier_average = self.seconds_per_request.get(exponent, 0.0)
        average = earlier_average + weight * (seconds / size - earlier_average)
        if num_earlier >= MIN_SAMPLES and earlier_average > 0:
            self._scale_unused_sizes(exponent, average / earlier_average)
        self.seconds_per_request[exponent] = average
        self.num_samples[exponent] = num_earlier + 1
        self.num_batches += 1
        self.latest_batches[exponent] = self.num_batches

    def _scale_unused_sizes(self, exponent: int, change: float) -> None:
        """Let the sizes that are not in use follow a size that is: a busy machine is slower at all of them."""
        oldest = self.num_batches - RECENT_BATCHES
        sizes_in_use = {other for other, batch in self.latest_batches.items() if batch > oldest}
        if exponent in sizes_in_use:
            for other in self.seconds_per_request.keys() - sizes_in_use:
                self.seconds_per_request[other] *= change ** (1 / len(sizes_in_use))

    @property
    def single_seconds(self) -> float:
        """CPU seconds of a request that is computed alone; 0 before there was one."""
        return self.seconds_per_request.get(0, 0.0)

    def choose_inline_size(self, num_waiting: int, limit_seconds: float = INLINE_SECONDS) -> int:
        """Return how many of the waiting requests the event loop should compute now; 0 leaves all to the thread.

        All of them, if that takes less than `limit_seconds`; otherwise as many as do, unless one large batch is
        cheaper. A size that is not known yet goes to the thread, a single request excepted.
        """
        exponent = size_exponent(num_waiting)
        if self.num_samples.get(exponent, 0) < MIN_SAMPLES:
            return 1 if num_waiting == 1 else 0
        cost = self.seconds_per_request[exponent]
        if cost * num_waiting <= limit_seconds:
            return num_waiting
        for smaller in range(exponent, -1, -1):
            if self.num_samples.get(smaller, 0) < MIN_SAMPLES:
                continue
            seconds = self.seconds_per_request[smaller]
            size = min(1 << smaller, int(limit_seconds / max(seconds, 1e-9)))
            if size_exponent(size) == smaller and seconds <= THREAD_GAIN * cost:
                return size
        return 0

    def choose_thread_size(self, num_waiting: int) -> int:
        """Return how many of the waiting requests the thread should compute in its next batch.

        Sizes that are not known yet are tried, the smallest first. Of known ones, the smallest is taken that is nearly
        as cheap as any: large batches do not fit into the processor's caches.
        """
        exponents = range(size_exponent(num_waiting) + 1)
        for exponent in exponents:
            if self.num_samples.get(exponent, 0) < MIN_SAMPLES:
                return min(num_waiting, 1 << exponent)
        limit = CHEAPEST_MARGIN * min(self.seconds_per_request[exponent] for exponent in exponents)
        return min(num_waiting, 1 << next(e for e in exponents if self.seconds_per_request[e] <= limit))


@dataclass
class StageTimes:
    """Running averages of the CPU seconds of each stage of a single request: to prepare it, and to compute it."""

    seconds: list[float] = field(default_factory=list)

    def add_sample(self, stage: int, seconds: float) -> None:
        """Update the average of a stage, counted from 0."""
        self.seconds += [0.0] * (stage + 1 - len(self.seconds))
        self.seconds[stage] += LATEST_WEIGHT * (seconds - self.seconds[stage])

    def are_short(self, request_seconds: float) -> bool:
        """Return whether the event loop may run each stage of a request of so many seconds in all.

        Its share of the request says how long a stage takes now: requests are timed in the thread too, stages are not.
        """
        total = sum(self.seconds)
        return not total or max(self.seconds) / total * request_seconds <= INLINE_SECONDS


def size_exponent(size: int) -> int:
    """Return the exponent of the smallest power of two that is not below a size; -1 for an empty batch."""
    return (size - 1).bit_length() if size else -1
