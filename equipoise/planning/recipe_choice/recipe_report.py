"""What each recipe of a sweep does to the examples to the target and to the critical batch: recipes.json."""

from dataclasses import asdict, dataclass
from typing import Literal

from equipoise.number_bounds import Count, LearningRate, NonNegativeCount, PositiveNumber
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.training_setup import OptionValue
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

RECIPES_FILE = "recipes.json"
RECIPES_TABLE = "recipes.csv"


@dataclass(frozen=True, kw_only=True)
class RecipeAtBatch:
    """Examples to the target of a recipe at one global batch."""

    global_batch: Count
    """examples per step of all workers"""
    lr: LearningRate
    """best learning rate of those tried"""
    examples: PositiveNumber | None
    """examples to the target, as a geometric mean; None if no run reached it"""
    runs: Count
    """runs at this learning rate"""
    reached: NonNegativeCount
    """those of them that reached the target"""
    ratio: IntervalEstimate | None = None
    """examples over those of the plain recipe, from pairs of equal seeds; None without a pair"""
    pairs: NonNegativeCount = 0
    """pairs of runs that both reached the target"""

    @property
    def is_better(self) -> bool:
        """Whether it needs fewer examples than the plain recipe, beyond the interval."""
        return self.ratio is not None and self.ratio.high < 1

    @property
    def is_worse(self) -> bool:
        """Whether it needs more examples than the plain recipe, beyond the interval."""
        return self.ratio is not None and self.ratio.low > 1


@dataclass(frozen=True, kw_only=True)
class RecipeResult:
    """One recipe of a sweep."""

    recipe: str
    """name, as in --recipes"""
    options: dict[str, OptionValue]
    """options of training that it sets"""
    trials: NonNegativeCount
    """trials that ended"""
    reached: NonNegativeCount
    """those of them that reached the target"""
    critical_batch: IntervalEstimate | None
    """critical batch in examples; None if the runs do not show where it lies"""
    min_examples: IntervalEstimate | None
    """examples to the target at a very small batch; None without a fit"""
    critical_ratio: IntervalEstimate | None = None
    """critical batch over that of the plain recipe; None if one of them is not known"""
    at_batches: tuple[RecipeAtBatch, ...] = ()
    """examples by global batch, the smallest first"""
    seconds: IntervalEstimate | None = None
    """predicted seconds to the target with its own best plan, by the step times of the plain recipe; None without"""
    verdict: str = ""
    """what it changes, as a sentence without its end"""


@dataclass(frozen=True, kw_only=True)
class RecipeReport:
    """All recipes of a sweep, the plain one first."""

    schema: Literal[1] = 1
    """version of the format"""
    chosen: str
    """recipe that the plan is made with"""
    why: str
    """reason for the choice, as a sentence without its end"""
    recipes: tuple[RecipeResult, ...]
    """what each recipe does"""

    def to_json(self) -> JsonObject:
        """Return the contents of recipes.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, contents: object) -> "RecipeReport":
        """Decode the contents of recipes.json; refuse others."""
        return decode_json_value(contents, cls, code="file-damaged", problem="the recipes of a sweep are damaged")
