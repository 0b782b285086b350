"""Manifest of a bundle (bundle.json): its metadata, the digest of each file, and a digest of the manifest itself."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from equipoise.bundle.condition_entry import ConditionEntry
from equipoise.bundle.engine_results import EngineEntry
from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.kinds.boxes_input import BoxesInput
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.kinds.image_input import ImageInput
from equipoise.bundle.kinds.language import LanguageEvaluation
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.bundle.kinds.table_input import list_table_inputs
from equipoise.bundle.kinds.text_input import TextInput
from equipoise.bundle.tensor_spec import OPEN_SIZE, TensorSpec
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.target import Target
from equipoise.storage.atomic import read_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.tables.spec import TableSpec
from equipoise.type_aliases import JsonObject

BUNDLE_SCHEMA_VERSION: Final = 2
VERSION_DIGITS = 12  # of the digest: enough to distinguish all bundles that a service ever loads


Kind = Literal["image", "table", "text", "boxes"]
KINDS: Final = ("image", "table", "text", "boxes")
DATA_NAMES: Final[dict[Kind, str]] = {
    "image": "images",
    "table": "tables",
    "text": "texts",
    "boxes": "boxes in images",
}

Metrics = Evaluation | RegressionEvaluation | LanguageEvaluation | DetectionEvaluation
"""evaluation of a model, by what it predicts"""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Contents of bundle.json, in their order.

    `config`, `remedy` and `plan` stay JSON until somebody adapts the model: a service needs none of them, and should
    not refuse a bundle because another version trained it with other options.
    """

    schema: Literal[2] = BUNDLE_SCHEMA_VERSION
    """version of the format"""
    name: str
    """name of the model in a service"""
    workload: str
    """workload that the model learned first"""
    kind: Kind
    """kind of data that the model takes"""
    classes: list[str]
    """class names in the order of the scores; empty if the model does not classify"""
    image: ImageInput | None = None
    """images that the model takes; left out of the file of another kind"""
    table: TableSpec | None = None
    """columns of the rows that the model takes, and its label; left out of the file of another kind"""
    text: TextInput | None = None
    """texts that the model takes; left out of the file of another kind"""
    boxes: BoxesInput | None = None
    """images in which the model finds boxes, and how many; left out of the file of another kind"""
    inputs: tuple[TensorSpec, ...]
    """tensors that its programs take"""
    outputs: tuple[TensorSpec, ...]
    """tensors that its programs return"""
    examples: dict[str, int]
    """number of examples in each split"""
    metrics: Metrics
    """evaluation on the test split"""
    config: JsonObject
    """options that the model was trained with: the fields of `TrainConfig`, decoded by `decode_config`"""
    parameters: int
    """number of weights"""
    target: float | None
    """value of the validation metric at which training stops; None if it stops at its number of examples"""
    lower_is_better: bool = False
    """whether a lower metric is a better one; left out of the file if a higher one is"""
    published: str
    """date and time of the publication"""
    status: str
    """status of the run when it ended"""
    seen: int
    """examples seen in training"""
    machine: HardwareFacts
    """machine on which the engines were measured"""
    versions: dict[str, str]
    """versions of the packages that the bundle was published with"""
    engine: EngineEntry
    """engine that the model is served with, and the measurements of all"""
    remedy: JsonObject | None = None
    """drift that the model was adapted to, a `DriftCondition`; left out of the file if it was not adapted"""
    conditions: tuple[ConditionEntry, ...] = ()
    """conditions that the model knows beside that of its reference split; left out of the file if there are none"""
    plan: JsonObject | None = None
    """contents of the plan.json that the model was trained by, a `PlanDocument`"""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file, by name"""
    digest: str = ""
    """SHA-256 of the manifest without this line"""

    def __post_init__(self) -> None:
        if len(set(self.classes)) < len(self.classes):
            raise EquipoiseError("bundle-invalid", "its class names are not unique")
        if len({condition.name for condition in self.conditions}) < len(self.conditions):
            raise EquipoiseError("bundle-invalid", "the names of its conditions are not unique")
        require_section_of_kind(self)

    @property
    def image_input(self) -> ImageInput:
        """Images that the model takes; refuse a model of other data."""
        if self.image is None:
            raise EquipoiseError(
                "bundle-kind",
                f"{self.name} is a model of {DATA_NAMES[self.kind]}",
                "give the bundle of a model of images",
            )
        return self.image

    @property
    def classification(self) -> Evaluation:
        """Evaluation of a classifier; refuse a model that does not classify."""
        if not isinstance(self.metrics, Evaluation):
            raise EquipoiseError("bundle-kind", f"{self.name} does not predict classes")
        return self.metrics

    @property
    def detection(self) -> DetectionEvaluation:
        """Evaluation of a detector; refuse a model that finds no boxes."""
        if not isinstance(self.metrics, DetectionEvaluation):
            raise EquipoiseError("bundle-kind", f"{self.name} does not find boxes")
        return self.metrics

    @property
    def goal(self) -> Target:
        """Target of the training with its direction."""
        return Target(value=self.target, lower_is_better=self.lower_is_better)

    @property
    def version(self) -> str:
        """Version of the bundle, by which requests and verdicts name it."""
        return self.digest[:VERSION_DIGITS]

    def require_comparable(self, current: "Manifest", problem: str) -> None:
        """Refuse a model that cannot be compared with the current one: of other images or classes, or of other data."""
        if not (self.image and current.image):
            raise EquipoiseError(
                "models-incompatible",
                f"{problem}: only models of images are compared",
                "give neither canary nor shadow",
            )
        if self.image.shape != current.image.shape or self.classes != current.classes:
            raise EquipoiseError("models-incompatible", f"{problem}: image shapes or classes differ")

    def to_json(self) -> JsonObject:
        """Return the contents of bundle.json."""
        contents: JsonObject = msgspec.to_builtins(self, str_keys=True) | {"machine": self.machine.to_json()}
        absent = {"remedy"} if self.remedy is None else set()
        absent |= set() if self.conditions else {"conditions"}
        absent |= set() if self.lower_is_better else {"lower_is_better"}
        absent |= {*KINDS} - {self.kind}
        return {key: value for key, value in contents.items() if key not in absent}

    @classmethod
    def from_json(cls, contents: object, path: Path) -> Self:
        """Build a manifest from the contents of bundle.json, which were read from `path`."""
        return decode_json_value(
            contents, cls, code="bundle-invalid", problem=f"cannot load {path}", remedy="publish it again"
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a bundle.json, without a look at the other files of the bundle."""
        return cls.from_json(read_json(path), path)

    def decode_config(self) -> TrainConfig:
        """Return the options that the model was trained with; refuse those of another version of this package."""
        problem = f"cannot tell how the model {self.name} was trained"
        names = {option.name for option in fields(TrainConfig)}
        if different := sorted(self.config.keys() ^ names):
            verb = "lacks" if different[0] in names else "has the unknown option"
            raise EquipoiseError("bundle-invalid", f"{problem}: its config {verb} {different[0]}", "publish it again")
        return decode_json_value(
            self.config, TrainConfig, code="bundle-invalid", problem=problem, remedy="publish it again"
        )


def require_section_of_kind(manifest: Manifest) -> None:
    """Refuse a manifest whose inputs, outputs or evaluation are not those of its kind."""
    sections = {kind: getattr(manifest, kind) for kind in KINDS}
    if [kind for kind, section in sections.items() if section is not None] != [manifest.kind]:
        raise EquipoiseError("bundle-invalid", f"it does not describe the {DATA_NAMES[manifest.kind]} that it takes")
    if not isinstance(manifest.metrics, find_evaluation_type(manifest)):
        raise EquipoiseError("bundle-invalid", f"its metrics are not those of a model of {DATA_NAMES[manifest.kind]}")
    if manifest.table and list(manifest.table.label.classes) != manifest.classes:
        raise EquipoiseError("bundle-invalid", "its classes are not those of its label")
    require_outputs_of_kind(manifest)
    section = manifest.image or manifest.text or manifest.boxes
    expected = section.list_inputs() if section else list_table_inputs(manifest.table) if manifest.table else ()
    if expected != manifest.inputs:
        raise EquipoiseError("bundle-invalid", "the tensors that its programs take are not those that it describes")


def find_evaluation_type(manifest: Manifest) -> type:
    """Return the type of the evaluation that a model of the manifest's kind has."""
    if manifest.table is not None:
        return RegressionEvaluation if manifest.table.label.kind == "number" else Evaluation
    return {"text": LanguageEvaluation, "boxes": DetectionEvaluation}.get(manifest.kind, Evaluation)


def require_outputs_of_kind(manifest: Manifest) -> None:
    """Refuse a manifest whose first outputs are not the scores of its classes, or the boxes of a detector."""
    if manifest.boxes is not None:
        if manifest.outputs[:-1] != manifest.boxes.list_box_outputs():
            raise EquipoiseError("bundle-invalid", f"its outputs are not {manifest.boxes.max_boxes} boxes for an image")
    elif not manifest.outputs or (manifest.classes and manifest.outputs[0].shape != (OPEN_SIZE, len(manifest.classes))):
        raise EquipoiseError("bundle-invalid", f"its scores are not those of {len(manifest.classes)} classes")


def summarize_metrics(metrics: Metrics) -> str:
    """Return how well a model does on the test split, in a few words."""
    if isinstance(metrics, LanguageEvaluation):
        return f"{metrics.nats_per_token:.4f} nats per token"
    if isinstance(metrics, DetectionEvaluation):
        return f"mAP {metrics.average_precision:.4f} (at overlap 0.50: {metrics.average_precision_50:.4f})"
    if isinstance(metrics, Evaluation):
        return f"accuracy {metrics.accuracy:.4f}"
    interval = (
        ""
        if metrics.half_width is None or metrics.coverage is None
        else f", {metrics.coverage:.1%} of values within {format_number(metrics.half_width)}"
    )
    return f"R2 {metrics.r2:.4f}, error {format_number(metrics.rmse)}{interval}"
