"""Page of the files that commands and services write: their keys, columns and arrays."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from docs.generate.class_tables import collect_classes, format_class_section, link_class
from docs.generate.file_texts import (
    DEVICE_VALUES,
    EXCHANGE_MEANINGS,
    EXCHANGE_VALUES,
    FILES_INTRODUCTION,
    NETWORK_DEVICE_MEANING,
    NPZ_ARRAYS,
    RUN_EXCHANGE_MEANINGS,
    STATISTICAL_MEANINGS,
    STEP_DEVICE_MEANING,
    TARGETS_MEANINGS,
    TEXTS,
)
from docs.generate.markdown import build_page, format_code, format_table, start_sentence
from equipoise.bundle.manifest import BUNDLE_SCHEMA_VERSION, Manifest
from equipoise.captures.capture import CaptureMetadata
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import DriftCondition
from equipoise.drift.diagnosis.verdict import DatasetVerdict, StreamVerdict
from equipoise.drift.features.statistic_schema import WatchedStatistic
from equipoise.drift.reference.profile import ARRAY_PREFIX, PROFILE_PARTS
from equipoise.labels.picture_labels import LABELS_SCHEMA, PictureLabels
from equipoise.parameter_store.arrivals.lap_arrivals import LapArrivals
from equipoise.planning.device_comparison.comparison_report import COMPARISON_SCHEMA, DeviceComparison
from equipoise.planning.devices.device_rows import DEVICE_COLUMN
from equipoise.planning.document import PLAN_SCHEMA, PlanDocument
from equipoise.planning.exchanges.exchange_columns import (
    ALGORITHM_COLUMNS,
    RUN_EXCHANGE_COLUMNS,
    STEP_EXCHANGE_COLUMNS,
    TIMED_ALGORITHMS,
)
from equipoise.planning.exchanges.link_report import LINK_SCHEMA, LinkReport, SumTiming
from equipoise.planning.measurements import (
    COUNT_COLUMN,
    DATA_SECONDS_COLUMN,
    EXCHANGE_COLUMNS,
    JOULES_COLUMN,
    PACE_SD_COLUMN,
    READ_AHEAD_COLUMN,
    STATISTICAL_COLUMNS,
    SYSTEM_COLUMNS,
    TARGET_COLUMNS,
    Column,
)
from equipoise.planning.parameter_servers.worker_speeds import SECONDS_BY_WORKER_COLUMN
from equipoise.planning.recipe_choice.recipe_report import RecipeReport
from equipoise.planning.search_status.search_progress import SearchProgress
from equipoise.planning.sharding.memory_report import MemoryReport
from equipoise.profiling.profile_report import PROFILE_SCHEMA, ProfileReport
from equipoise.runs.misclassified import MisclassifiedImage
from equipoise.runs.record import RECORD_SCHEMA, Lap, Record
from jobs.command_options.class_fields import list_fields, read_attribute_docs
from jobs.publishing.browser.page_manifest import PAGE_SCHEMA, PageManifest
from jobs.timing.timing_records import ExchangeTiming, StepTiming


@dataclass(frozen=True, kw_only=True)
class JsonFile:
    """JSON file: the class of its content, and its schema number if it has one."""

    name: str
    classes: tuple[Any, ...]
    schema: int | None = None


JSON_FILES = (
    JsonFile(name="record.json", classes=(Record,), schema=RECORD_SCHEMA),
    JsonFile(name="trial.json", classes=()),
    JsonFile(name="laps.jsonl", classes=(Lap,)),
    JsonFile(name="arrivals.jsonl", classes=(LapArrivals,)),
    JsonFile(name="misclassified.json", classes=(MisclassifiedImage,)),
    JsonFile(name="plan.json", classes=(PlanDocument,), schema=PLAN_SCHEMA),
    JsonFile(name="memory.json", classes=(MemoryReport,), schema=MemoryReport.schema),
    JsonFile(name="recipes.json", classes=(RecipeReport,), schema=RecipeReport.schema),
    JsonFile(name="search.json", classes=(SearchProgress,), schema=SearchProgress.schema),
    JsonFile(name="profile.json", classes=(ProfileReport,), schema=PROFILE_SCHEMA),
    JsonFile(name="comparison.json", classes=(DeviceComparison,), schema=COMPARISON_SCHEMA),
    JsonFile(name="links.json", classes=(LinkReport,), schema=LINK_SCHEMA),
    JsonFile(name="bundle.json", classes=(Manifest, DriftCondition), schema=BUNDLE_SCHEMA_VERSION),
    JsonFile(name="model.json", classes=(PageManifest,), schema=PAGE_SCHEMA),
    JsonFile(name="verdict.json", classes=(DatasetVerdict, StreamVerdict)),
    JsonFile(name="captures", classes=(CaptureMetadata,)),
    JsonFile(name="labels", classes=(PictureLabels,), schema=LABELS_SCHEMA),
)
FILES = (
    *("record.json", "trial.json", "laps.jsonl", "arrivals.jsonl", "misclassified.json"),
    *("system.csv", "exchange.csv", "statistical.csv"),
    "targets.csv",
    *("links.csv", "links.json"),
    *("plan.json", "memory.json", "recipes.json", "search.json", "profile.json", "comparison.json"),
    *("bundle.json", "reference.npz", "model.json", "verdict.json", "captures", "labels"),
)
"""files in the order of the page"""


def build_file_formats_page() -> str:
    """Build the page of all files, docs/reference/file-formats.md."""
    documented: set[type] = {TrainConfig}
    blocks: list[str] = []
    files = {file.name: file for file in JSON_FILES}
    for name in FILES:
        file = files.get(name)
        blocks += [f"## {TEXTS[name].title}", TEXTS[name].text]
        if file:
            blocks += format_json_file(file, documented)
        elif name == "reference.npz":
            blocks.append(format_npz_table())
        else:
            blocks.append(format_csv_table(name))
    return build_page(
        "File formats",
        FILES_INTRODUCTION,
        format_table(("file", "written by", "schema"), map(format_file_row, FILES)),
        *blocks,
    )


def format_file_row(name: str) -> tuple[str, str, str]:
    """Format the row of a file in the table at the top."""
    text = TEXTS[name]
    schema = next((file.schema for file in JSON_FILES if file.name == name), None)
    return f"[{text.title}](#{text.anchor})", text.writer, format_code(str(schema)) if schema else "-"


def format_json_file(file: JsonFile, documented: set[type]) -> Iterator[str]:
    """Yield the sections of the classes in a file that no earlier file has documented."""
    for kind in collect_classes(file.classes):
        if kind not in documented:
            documented.add(kind)
            yield from format_class_section(kind, link_data_class)


def link_data_class(kind: type) -> str:
    """Return a link to the section of a class; that of the options of training is on another page."""
    link = link_class(kind)
    return link.replace("(#", "(python-api.md#") if kind is TrainConfig else link


def format_csv_table(name: str) -> str:
    """Format the columns of a table of measurements: who needs them, which values they may hold, and their meaning."""
    meanings, required, others = describe_columns(name)
    rows = [
        (
            format_code(column),
            "required",
            rule.description + " or empty" * rule.may_be_empty,
            start_sentence(meanings[column]),
        )
        for column, rule in required.items()
    ]
    rows += [
        (format_code(column), "optional", text, start_sentence(meanings[column])) for column, text in others.items()
    ]
    return format_table(("column", "for `equipoise plan`", "values", "meaning"), rows)


def describe_columns(name: str) -> tuple[dict[str, str], dict[str, Column], dict[str, str]]:
    """Return the meanings of a table's columns, those that must be there, and the values of the others."""
    if name == "targets.csv":
        return TARGETS_MEANINGS, {}, {name: rule.description for name, rule in TARGET_COLUMNS.items()}
    if name == "links.csv":
        required, others = describe_link_columns()
        meanings = read_attribute_docs(SumTiming) | {DEVICE_COLUMN: NETWORK_DEVICE_MEANING}
        return meanings, required, others | {DEVICE_COLUMN: DEVICE_VALUES}
    if name == "statistical.csv":
        others = {"exchange": EXCHANGE_VALUES}
        others |= {column: f"{rule.description} or empty" for column, rule in RUN_EXCHANGE_COLUMNS.items()}
        return STATISTICAL_MEANINGS | RUN_EXCHANGE_MEANINGS, STATISTICAL_COLUMNS, others
    kind, required = (StepTiming, SYSTEM_COLUMNS) if name == "system.csv" else (ExchangeTiming, EXCHANGE_COLUMNS)
    meanings = read_attribute_docs(kind)
    written = [field.name for field in fields(kind) if field.name not in ("repeat", *required)]
    rules = {
        "pace_sd": PACE_SD_COLUMN.description,
        "gradient_bytes": SYSTEM_COLUMNS["batch"].description,
        SECONDS_BY_WORKER_COLUMN: "a number of seconds above 0 for each worker, with spaces between them, or empty",
        "kind": "`sum` or `message`; `sum` if the column is missing",
    }
    others = {column: rules.get(column, "not read") for column in written}
    if name == "system.csv":
        others["exchange"] = EXCHANGE_VALUES
        others |= {column: f"{rule.description} or empty" for column, rule in STEP_EXCHANGE_COLUMNS.items()}
        others["joules"] = JOULES_COLUMN.description
        others["data_seconds"] = DATA_SECONDS_COLUMN.description
        others["read_ahead"] = READ_AHEAD_COLUMN.description
        meanings = meanings | EXCHANGE_MEANINGS
    device_meaning = STEP_DEVICE_MEANING if name == "system.csv" else NETWORK_DEVICE_MEANING
    return meanings | {DEVICE_COLUMN: device_meaning}, required, others | {DEVICE_COLUMN: DEVICE_VALUES}


def describe_link_columns() -> tuple[dict[str, Column], dict[str, str]]:
    """Return the columns of links.csv that a plan needs, and the values of the others."""
    algorithm = Column(f"one of {', '.join(TIMED_ALGORITHMS)}", lambda values: values.isin(TIMED_ALGORITHMS))
    required = {"algorithm": algorithm, **ALGORITHM_COLUMNS}
    others = {field.name: "not read" for field in fields(SumTiming) if field.name not in required}
    return required, others | {"nodes": COUNT_COLUMN.description}


def format_npz_table() -> str:
    """Format the arrays of reference.npz as a table."""
    rows = [(format_code(name), start_sentence(meaning)) for name, meaning in list_npz_arrays().items()]
    return format_table(("array", "meaning"), rows)


def list_npz_arrays() -> dict[str, str]:
    """Return the meaning of each array in reference.npz, by name."""
    parts = {
        f"{ARRAY_PREFIX}{part}.{field.name}": field.doc
        for part, kind in PROFILE_PARTS.items()
        for field in list_fields(kind)
    }
    schema = {
        f"{ARRAY_PREFIX}schema.{field.name}": f"(charted statistics,) {field.doc}"
        for field in list_fields(WatchedStatistic)
        if field.name != "name"  # that is `drift.figures`
    }
    return NPZ_ARRAYS | parts | schema
