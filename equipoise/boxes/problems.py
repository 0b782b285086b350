"""What is wrong with labelled pictures: named, counted and left out, so that the rest can be used."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MAX_EXAMPLES = 5  # places that are named for each kind of problem


class ProblemKind(StrEnum):
    """Kind of a problem with a picture, a box or a file of labels, in words for people."""

    BOX_OUTSIDE = "box outside of its picture"
    BOX_EMPTY = "box of zero size"
    BOX_BROKEN = "box that cannot be read"
    CLASS_UNKNOWN = "unknown class"
    LABELS_WITHOUT_PICTURE = "labels without picture"
    PICTURE_WITHOUT_LABELS = "picture without labels"
    PICTURE_LABELLED_TWICE = "picture labelled twice"
    ID_SHARED = "number that two entries share"
    SIZE_DIFFERS = "labels for a picture of another size"
    FILE_BROKEN = "file that cannot be read"
    CROWD_LOST = "crowd that the format cannot hold"


@dataclass(frozen=True)
class Problem:
    """One thing that was left out, and where it is."""

    kind: ProblemKind
    place: str
    """file, with the line or the box in it"""


@dataclass(frozen=True)
class DataProblems:
    """Counts of what was left out by kind, with the first places of each."""

    counts: Mapping[ProblemKind, int] = field(default_factory=dict)
    examples: Mapping[ProblemKind, tuple[str, ...]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the number of things that were left out."""
        return sum(self.counts.values())

    def describe(self) -> list[str]:
        """Return a line for each kind, such as '3 x box of zero size: a.txt, line 2; b.txt, line 7; ...'."""
        return [
            f"{count:,} x {kind}: {'; '.join(self.examples[kind])}{'; ...' * (count > len(self.examples[kind]))}"
            for kind, count in self.counts.items()
        ]

    def __add__(self, later: "DataProblems") -> "DataProblems":
        counts = Counter(dict(self.counts)) + Counter(dict(later.counts))
        examples = {
            kind: (*self.examples.get(kind, ()), *later.examples.get(kind, ()))[:MAX_EXAMPLES] for kind in counts
        }
        return DataProblems(dict(counts), examples)


def count_problems(problems: Iterable[Problem]) -> DataProblems:
    """Return the counts of problems by kind, in the order in which they first occur, with the first places of each."""
    places: dict[ProblemKind, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.kind, []).append(problem.place)
    return DataProblems(
        {kind: len(found) for kind, found in places.items()},
        {kind: tuple(found[:MAX_EXAMPLES]) for kind, found in places.items()},
    )
