"""Comparison of several experiments: settings that differ, results with their differences, and curves."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dashboards.experiments import READ_ERRORS, Experiment, Sweep, experiment_at
from dashboards.page import Panel
from dashboards.panels.experiment_index import metric_curve, sweep_facts, time_to_target_curve
from dashboards.panels.experiments.compared_curves import NamedCurve, build_comparison_panel
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.planning.device_comparison.comparison_report import DeviceComparison
from equipoise.profiling.profile_report import ProfileReport
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record
from services.site.experiments.index_columns import INDEX_COLUMNS, IndexColumn, Value
from services.site.experiments.index_queries import ExperimentRow
from services.site.result_paths import resolve_result_path

MIN_COMPARED, MAX_COMPARED = 2, 6
RESULT_COLUMNS = ("status", "examples_to_target", "examples", "seconds", "test")
"""columns that tell what came out; all others are settings"""
LEFT_OUT_COLUMNS = ("path", "modified")
ComparedContent = Record | Sweep | ProfileReport | DeviceComparison


@dataclass(frozen=True, kw_only=True)
class ComparedValue:
    """Value of one experiment in a row of a comparison."""

    value: Value
    text: str
    difference: float | None = None
    """value minus that of the first experiment; None where one of them is no number"""
    share: float | None = None
    """difference over the value of the first experiment"""


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """Setting or result of all experiments that are compared."""

    name: str
    values: tuple[ComparedValue, ...]
    differs: bool


@dataclass(frozen=True, kw_only=True)
class ExperimentComparison:
    """Several experiments, side by side."""

    names: tuple[str, ...]
    settings: tuple[ComparedRow, ...]
    results: tuple[ComparedRow, ...]

    @property
    def different_settings(self) -> list[ComparedRow]:
        """Settings that are not the same in all experiments."""
        return [row for row in self.settings if row.differs]

    @property
    def equal_settings(self) -> list[ComparedRow]:
        """Settings that all experiments share."""
        return [row for row in self.settings if not row.differs]


@dataclass(frozen=True, kw_only=True)
class ComparedExperiment:
    """Row of the index with the contents that its files hold."""

    row: ExperimentRow
    content: ComparedContent | None

    @property
    def settings(self) -> dict[str, Value]:
        """Every setting by its name: those of the index, and all options of a run."""
        columns = {
            column.name: self.row.values[column.name]
            for column in INDEX_COLUMNS
            if column.name not in (*RESULT_COLUMNS, *LEFT_OUT_COLUMNS)
        }
        if isinstance(self.content, Record | ProfileReport | DeviceComparison):
            options = asdict(self.content.config)
            return columns | {name: make_comparable(value) for name, value in options.items()}
        if isinstance(self.content, Sweep):
            facts = sweep_facts(self.content)
            return columns | {name: facts[name] for name in ("plan", "device", "bound by") if name in facts}
        return columns

    @property
    def curve(self) -> NamedCurve | None:
        """Curve of the experiment; None without one."""
        if isinstance(self.content, Record):
            curve = metric_curve(self.content)
        elif isinstance(self.content, Sweep):
            curve = time_to_target_curve(self.content)
        else:
            return None
        return NamedCurve(self.row.path, curve) if curve else None


def select_compared(paths: Iterable[str]) -> list[str]:
    """Return the paths of the experiments to compare, each once; refuse one alone, and too many."""
    selected = [*dict.fromkeys(paths)]
    if not MIN_COMPARED <= len(selected) <= MAX_COMPARED:
        raise EquipoiseError(
            "option-range",
            f"cannot compare {len(selected)} experiments: it takes {MIN_COMPARED} to {MAX_COMPARED} of them",
            "check them in the table",
        )
    return selected


def load_compared(results: Path, row: ExperimentRow) -> ComparedExperiment:
    """Read the contents of an experiment that is compared; one that cannot be read has its row alone."""
    try:
        if row.values["kind"] == "trial":
            file = resolve_result_path(results, f"{row.path}.json")
            return ComparedExperiment(row=row, content=read_record(file))
        if row.path != ".":  # where the results folder is an experiment itself
            resolve_result_path(results, row.path, must_exist=False)
        experiment = experiment_at(results, Path(row.path))
    except (*READ_ERRORS, OSError):
        return ComparedExperiment(row=row, content=None)
    return ComparedExperiment(row=row, content=select_content(experiment))


def select_content(experiment: Experiment | None) -> ComparedContent | None:
    """Return the contents of an experiment that has settings."""
    content = experiment.content if experiment else None
    return content if isinstance(content, ComparedContent) else None


def compare_experiments(experiments: Sequence[ComparedExperiment]) -> ExperimentComparison:
    """Compare experiments by all their settings and results."""
    settings = [experiment.settings for experiment in experiments]
    names = dict.fromkeys(name for each in settings for name in each)
    titles = {column.name: column for column in INDEX_COLUMNS}
    results = [titles[name] for name in RESULT_COLUMNS]
    return ExperimentComparison(
        names=tuple(experiment.row.path for experiment in experiments),
        settings=tuple(build_setting_row(name, [each.get(name) for each in settings]) for name in names),
        results=tuple(
            build_result_row(column, [each.row.values[column.name] for each in experiments]) for column in results
        ),
    )


def build_curve_panel(experiments: Sequence[ComparedExperiment]) -> Panel | None:
    """Build the figure of the curves of all experiments that have one."""
    return build_comparison_panel([curve for experiment in experiments if (curve := experiment.curve)])


def build_setting_row(name: str, values: Sequence[Value]) -> ComparedRow:
    """Build the row of one setting."""
    texts = [format_setting_value(value) for value in values]
    compared = tuple(ComparedValue(value=value, text=text) for value, text in zip(values, texts, strict=True))
    return ComparedRow(name=name.replace("_", " "), values=compared, differs=len({*texts}) > 1)


def build_result_row(column: IndexColumn, values: Sequence[Value]) -> ComparedRow:
    """Build the row of one result, with the differences from the first experiment."""
    first = values[0]
    compared = []
    for index, value in enumerate(values):
        difference = share = None
        if index and isinstance(value, int | float) and isinstance(first, int | float):
            difference = value - first
            share = difference / abs(first) if first else None
        compared.append(ComparedValue(value=value, text=column.format(value), difference=difference, share=share))
    differs = len({value.text for value in compared}) > 1
    return ComparedRow(name=column.title, values=tuple(compared), differs=differs)


def format_setting_value(value: Value) -> str:
    """Format the value of a setting; a dash where it is not set."""
    if value is None or value == "":
        return "-"
    return format_number(value) if isinstance(value, float) else str(value)


def make_comparable(value: object) -> Value:
    """Return the value of an option as a number or text."""
    return value if isinstance(value, str | int | float) or value is None else str(value)
