"""Drift verdicts, on a stream of requests or on a set of images, and their JSON."""

from datetime import datetime
from typing import Annotated, Literal, Self

import msgspec
import numpy as np

from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate
from equipoise.drift.diagnosis.dataset_findings import InversionProof, MeasuredError, ReferenceSupport
from equipoise.drift.features.statistic_schema import EXAMPLE_NAMES, ProfileKind
from equipoise.formatting import format_share
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

VerdictState = Literal["ok", "drift", "unknown"]


class ChartEffect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"class_name": "class"}):
    """Difference that a chart found, in the unit of what it observes, with an interval where there is one."""

    unit: str
    """unit of the values"""
    value: float
    """difference from the reference, or the new share for charts of classes"""
    low: float | None
    """lower end of the interval"""
    high: float | None
    """upper end of the interval"""
    class_name: str | None = None
    """class whose share changed, for charts of classes"""
    reference: float | None = None
    """share of this class in the reference"""


class CorruptionEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What explains a drift, such as a corruption or a column that moved, and its size with a 95 % interval."""

    cause: str
    """name of the cause, such as `exposure` or `column x3`"""
    detail: str
    """direction of the change, such as `darker` or `higher`"""
    value: float
    """size in the unit"""
    unit: str = ""
    """unit of the size; empty for a plain number"""
    low: float | None = None
    """lower end of the interval"""
    high: float | None = None
    """upper end of the interval"""
    explained: float | None = None
    """share of the whole squared shift that it accounts for, beside the effects before it"""


class ChartReading(msgspec.Struct, frozen=True, kw_only=True):
    """Value of one chart, its alarm threshold, and the difference behind it."""

    name: str
    """name of the chart"""
    value: float
    """height of the chart"""
    threshold: float
    """height at which the chart raises an alarm"""
    effect: ChartEffect | None
    """difference behind the height; None for charts without a unit"""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether images, rows of a table or texts look like the reference of a model, with the numbers behind it."""

    state: VerdictState
    """`unknown` if there are too few examples or no usable reference"""
    kind: ProfileKind = "image"
    """what the examples are: images, rows of a table or texts; other fields say images in place of all three"""
    has_accuracy: bool = True
    """whether the model predicts classes, whose accuracy can be estimated"""
    why: str = ""
    """reason for the state, in one sentence"""
    images: int = 0
    """number of images: those of the set, or all that were answered in a stream"""
    cause: str | None = None
    """name of the cause of a drift; None without drift"""
    effects: tuple[CorruptionEffect, ...] = ()
    """corruptions that explain the drift, the strongest first"""
    runner_up: CorruptionEffect | None = None
    """best corruption of another cause in place of the last effect, with the share that it would explain"""
    accuracy: AccuracyEstimate | Literal["unknown"] = "unknown"
    """estimated accuracy on these images"""
    charts: tuple[ChartReading, ...] = ()
    """readings of all charts"""
    classes: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    """number of images by predicted class"""
    usual: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    """number of images of the reference by predicted class"""
    conditions: dict[str, float] = {}
    """share of the images in each known condition, by name; without drift in a stream, of all images remembered"""
    condition: str | None = None
    """name of the most frequent condition"""
    model: str | None = None
    """name of the model"""
    version: str | None = None
    """version of the bundle"""

    @property
    def onset_seconds(self) -> float:
        """Seconds since 1970 at which the drift began; 0 if the verdict does not say."""
        return 0.0

    @property
    def example_name(self) -> str:
        """What the examples are called, in the plural."""
        return EXAMPLE_NAMES[self.kind]

    def describe_condition(self) -> str | None:
        """Return the most frequent condition with its share of the examples; None where less than two are known."""
        if self.condition is None or len(self.conditions) < 2:
            return None
        return f"{self.condition} ({format_share(self.conditions.get(self.condition))} of the {self.example_name})"

    def to_json(self) -> JsonObject:
        """Return the verdict as JSON values, as files and HTTP replies hold it."""
        contents: JsonObject = msgspec.to_builtins(self, enc_hook=scalar_to_python)
        return contents

    @classmethod
    def from_json(cls, contents: object, problem: str = "cannot read the verdict") -> Self:
        """Build a verdict from its JSON; refuse contents that are none."""
        return decode_json_value(
            contents,
            cls,
            code="verdict-invalid",
            problem=problem,
            remedy="give a reply of /drift, or the output of equipoise check --json",
        )


class AlarmTime(msgspec.Struct, frozen=True, kw_only=True):
    """Moment at which a chart reached its threshold, in UTC."""

    image_number: int
    """number of the answered image, counted from the first one of the stream"""
    at: str
    """date and time"""
    chart: str
    """name of the chart"""


class DriftOnset(msgspec.Struct, frozen=True, kw_only=True):
    """Moment at which a change began, in UTC, and the alarm that it set off."""

    at: str
    """date and time"""
    images_ago: int = 0
    """images answered since then"""
    alarm: AlarmTime | None = None
    """first alarm of the drift"""

    def __post_init__(self) -> None:
        if datetime.fromisoformat(self.at).tzinfo is None:
            raise ValueError(f"{self.at} has no time zone")


class FalseAlarmRate(msgspec.Struct, frozen=True, kw_only=True):
    """False alarms counted on held-out images when the model was published."""

    asked: float
    """requested images per false alarm"""
    pictures: int
    """images in all streams"""
    alarms: int
    """false alarms in all streams"""
    held_out: int
    """held-out images that the streams repeat"""
    realised: float
    """images per false alarm that new images would give, estimated from the count"""
    low: float
    """lower end of its 95 % interval"""
    high: float
    """upper end of its 95 % interval"""


class BettingEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence against the reference that holds at any time, and the value at which it is strong."""

    value: float
    """logarithm of the mean wealth of bets against the reference"""
    threshold: float
    """value at which the evidence is strong"""


class TickCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of replica reports that were lost, came late, or came twice."""

    lost: int
    """reports that never reached the monitor"""
    late: int
    """reports that came late"""
    twice: int
    """reports that came twice and were counted once"""


class StreamVerdict(Verdict, frozen=True, kw_only=True):
    """Verdict on a stream of requests."""

    looked_at: int = 0
    """requests that were observed; the others were only answered"""
    since: DriftOnset | None = None
    """when the drift began; None without an alarm"""
    run_length: float | None = None
    """requested requests per false alarm"""
    verified: FalseAlarmRate | None = None
    """false alarms counted at publication; None if they were not counted"""
    reference_warning: str | None = None
    """one sentence on a reference with too few images for the requested run length"""
    runs: float | None = None
    """mean run length of one predicted class in a row"""
    evidence: BettingEvidence | None = None
    """evidence against the reference that holds at any time"""
    sources: dict[str, "StreamVerdict"] = {}
    """verdicts on the sources that clients named, without charts"""
    replicas: int = 0
    """replicas that report to the monitor"""
    ticks: TickCounts | None = None
    """reports of replicas that were lost, late or repeated"""

    @property
    def onset_seconds(self) -> float:
        """Seconds since 1970 at which the drift began; 0 if the verdict does not say."""
        return datetime.fromisoformat(self.since.at).timestamp() if self.since else 0.0


class ChartHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Height of each chart after each step of a stream."""

    image_numbers: list[int] = []
    """number of the last answered image of each step, counted from the first one of the stream"""
    times: list[float] = []
    """Unix time of each step"""
    threshold: list[float] = []
    """height at which a chart raised an alarm, at each step"""
    charts: dict[str, list[float]] = {}
    """heights of each chart at each step, by its name"""
    conditions: dict[str, list[float]] = {}
    """share of each known condition in each step, by its name; empty if only one is known"""


class DatasetVerdict(Verdict, frozen=True, kw_only=True):
    """Verdict on a set of images, rows or texts."""

    support: ReferenceSupport | None = None
    """overlap with the reference; None without drift"""
    moved: tuple[str, ...] = ()
    """names of the images that changed most; of rows their numbers, of texts their files and places"""
    proof: InversionProof | None = None
    """what is left after the causes were undone; None where they cannot be"""
    unread: int = 0
    """number of images that could not be read"""
    uncompared: int = 0
    """number of rows or texts left out of the comparison, because there are very many"""
    piece_characters: int | None = None
    """length of the pieces that texts were cut into, each of which counts as a text; None for other data"""
    measured: MeasuredError | None = None
    """error on the rows that have a label; None without any"""
    bundle: str | None = None
    """path of the bundle"""
    folder: str | None = None
    """path of the images, of the table or of the texts"""


def scalar_to_python(value: object) -> object:
    """Return a NumPy scalar as a Python number: msgspec encodes no others."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot encode a {type(value).__name__} as JSON")


def parse_verdict(contents: object, problem: str = "cannot read the verdict") -> StreamVerdict | DatasetVerdict:
    """Build the verdict of /drift or of jobs.check from its JSON; refuse contents that are none."""
    is_stream = isinstance(contents, dict) and bool(contents.keys() & {"looked_at", "since"})
    kind: type[StreamVerdict] | type[DatasetVerdict] = StreamVerdict if is_stream else DatasetVerdict
    return kind.from_json(contents, problem)
