"""Check of text files against the reference of a language model, in pieces as long as its window."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch

from dashboards.page import NumberCell, Page, Table, TableCell
from dashboards.reports import drift_page
from equipoise.bundle.kinds.text_bundle import MAX_BATCH_WINDOWS, TextBundle
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.profiling.bundle_profile import collect_answered_windows, load_bundle_profile
from equipoise.drift.profiling.row_profile import AnsweredTexts, concat_answered_texts, extract_text_features
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from equipoise.spacing import evenly_spaced_indices
from equipoise.workloads.text.text_files import list_text_files, read_text_file
from jobs.checking.checked_data import CheckedData

MAX_COMPARED_PIECES = 20_000  # evenly spaced ones of longer texts: more take minutes and tell little more


@dataclass(frozen=True)
class TextPiece:
    """Piece of a text file that a language model reads at once."""

    file: str
    """path of the file below the folder checked"""
    start: int
    """number of characters before it"""
    text: str

    @property
    def name(self) -> str:
        """File, and number of the first character in it."""
        return f"{self.file}:{self.start + 1}"


def check_texts(model: TextBundle, path: Path) -> CheckedData:
    """Return the verdict on a text file or a folder of .txt files, with the names of the pieces that changed most."""
    pieces = cut_pieces(read_texts(path), model.window)
    chosen = [pieces[place] for place in evenly_spaced_indices(len(pieces), MAX_COMPARED_PIECES)]
    answered, ordered = answer_pieces(model, chosen)
    verdict = diagnose_texts(model, answered, ordered)
    verdict = msgspec.structs.replace(verdict, uncompared=len(pieces) - len(chosen), piece_characters=model.window)
    return CheckedData(verdict, partial(build_text_page, answered, ordered))


def read_texts(path: Path) -> dict[str, str]:
    """Read a text file, or all .txt files below a folder, by their paths below it; refuse what is not text."""
    texts = {}
    for file in list_text_files(path):
        name = file.relative_to(path).as_posix() if file != path else path.name
        texts[name] = read_text_file(file)
        if "\0" in texts[name]:
            raise EquipoiseError(
                "dataset-invalid", f"cannot check --data {file}: it holds zero bytes, so it is no text", "give a text"
            )
    if not any(texts.values()):
        raise EquipoiseError("dataset-invalid", f"cannot check --data {path}: it holds no character", "give a text")
    return texts


def cut_pieces(texts: dict[str, str], window: int) -> list[TextPiece]:
    """Cut texts into pieces of a window's length, without the rest of each; a text shorter than that is one piece."""
    pieces = []
    for name, text in texts.items():
        starts = range(0, len(text) - window + 1, window) if len(text) > window else range(min(len(text), 1))
        pieces += [TextPiece(name, start, text[start : start + window]) for start in starts]
    return pieces


def answer_pieces(model: TextBundle, pieces: Sequence[TextPiece]) -> tuple[AnsweredTexts, list[TextPiece]]:
    """Return what the model says of pieces, and the pieces in that order: those of one length together."""
    parts, ordered = [], sorted(pieces, key=lambda piece: len(piece.text))
    lengths = np.array([len(piece.text) for piece in ordered])
    for length in np.unique(lengths):
        tokens = [model.vocabulary.encode(piece.text) for piece in ordered if len(piece.text) == length]
        for windows in torch.from_numpy(np.stack(tokens)).split(MAX_BATCH_WINDOWS):
            parts.append(collect_answered_windows(model.vocabulary, windows, model.run_engine(windows)[0]))
    answered = concat_answered_texts(parts)
    texts = [piece.text for piece in ordered]
    return AnsweredTexts(texts, answered.nats_per_token, answered.features, answered.token_nats), ordered


def diagnose_texts(model: TextBundle, texts: AnsweredTexts, pieces: Sequence[TextPiece]) -> DatasetVerdict:
    """Return the verdict on texts that the model has read; unknown where the bundle has no reference for them."""
    try:
        profile = load_bundle_profile(model)
    except EquipoiseError as error:
        if error.code != "reference-unusable":
            raise
        return DatasetVerdict(kind="text", has_accuracy=False, state="unknown", why=str(error), images=len(pieces))
    none = np.zeros((0, texts.features.shape[1])), np.zeros(0, np.int64)
    features = extract_text_features(profile, texts)
    return compute_dataset_verdict(profile, features, texts.features, *none, [piece.name for piece in pieces])


def build_text_page(texts: AnsweredTexts, pieces: Sequence[TextPiece], verdict: DatasetVerdict) -> Page:
    """Build the page of a verdict on texts, with the pieces that changed most."""
    places = {piece.name: place for place, piece in enumerate(pieces)}
    rows: list[list[TableCell]] = []
    for place in (places[name] for name in verdict.moved):
        nats, piece = float(texts.nats_per_token[place]), pieces[place]
        rows.append(
            [piece.file, piece.start + 1, NumberCell(nats, f"{nats:.2f}"), make_printable(" ".join(piece.text.split()))]
        )
    columns = ["file", "character", "nats per token", "text"]
    moved = Table(name="moved", columns=columns, rows=rows) if rows else None
    return drift_page(verdict, [], [], moved_examples=moved)
