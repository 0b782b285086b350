"""Messages of the API about experiments."""

from typing import Annotated

import msgspec

from services.site.experiments.experiment_notes import MAX_NOTE_LENGTH


class ExperimentReply(msgspec.Struct, frozen=True, kw_only=True):
    """Experiment, or record of a trial of a sweep."""

    path: str
    """folder below the results, or record of a trial without its suffix"""
    kind: str
    """run, trial, sweep, plan, bundle, check, profile, comparison or `?`"""
    status: str | None
    modified: float
    """time of the last change in seconds since 1970"""
    workload: str | None
    model: str | None
    optimizer: str | None
    workers: int | None
    batch_size: int | None
    grad_accumulation: int | None
    global_batch: int | None
    lr: float | None
    seed: int | None
    target: float | None
    examples_to_target: float | None
    examples: int | None
    seconds: float | None
    test: float | None
    problem: str
    """why it cannot be read; empty if it can"""
    page: str | None
    """address of its page"""


class ExperimentListReply(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the experiments, and how many there are."""

    experiments: list[ExperimentReply]
    total: int
    """number of all that the filter lets through"""
    is_complete: bool
    """whether all folders were looked at since the site began"""


class NoteReply(msgspec.Struct, frozen=True, kw_only=True):
    """Note of an experiment, with its author."""

    id: int
    text: str
    author: str
    written: float
    """time in seconds since 1970"""


class TagReply(msgspec.Struct, frozen=True, kw_only=True):
    """Tag of an experiment, with its author."""

    tag: str
    author: str
    written: float
    """time in seconds since 1970"""


class NotesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Notes and tags of an experiment."""

    path: str
    notes: list[NoteReply]
    tags: list[TagReply]


class NoteRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Note to write, and tags to set and to remove."""

    text: Annotated[str, msgspec.Meta(max_length=MAX_NOTE_LENGTH)] = ""
    add_tags: Annotated[list[str], msgspec.Meta(max_length=50)] = []
    remove_tags: Annotated[list[str], msgspec.Meta(max_length=50)] = []


class ComparedValueReply(msgspec.Struct, frozen=True, kw_only=True):
    """Value of one experiment that is compared."""

    value: str | int | float | None
    difference: float | None
    """value minus that of the first experiment"""


class ComparedRowReply(msgspec.Struct, frozen=True, kw_only=True):
    """Setting or result of all experiments that are compared."""

    name: str
    values: list[ComparedValueReply]
    differs: bool


class ComparisonReply(msgspec.Struct, frozen=True, kw_only=True):
    """Several experiments, side by side."""

    paths: list[str]
    settings: list[ComparedRowReply]
    results: list[ComparedRowReply]
