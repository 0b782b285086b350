"""Labels that a user gives to captures: the CSV that holds them, and the classes that they may be."""

import csv
import io
from collections.abc import Sequence

from equipoise.errors import EquipoiseError

MAX_CLASSES_IN_MESSAGE = 20


def parse_label_csv(csv_text: str) -> list[tuple[int, str, str]]:
    """Return row number (the header is row 1), id and label of each row of a CSV."""
    reader = csv.reader(io.StringIO(csv_text.removeprefix("\ufeff"), newline=""), skipinitialspace=True)
    try:
        rows = list(enumerate(reader, 1))
    except csv.Error as error:
        raise EquipoiseError("labels-invalid", f"row {reader.line_num} is not CSV ({error})") from None
    header = rows[0][1] if rows else []
    if [cell.strip() for cell in header] != ["id", "label"]:
        raise EquipoiseError("labels-invalid", f"row 1 must be id,label, got {','.join(header)[:80]!r}")
    for row, cells in rows:
        if len(cells) not in (0, 2):
            raise EquipoiseError("labels-invalid", f"row {row} has {len(cells)} columns, expected two: id,label")
    return [(row, cells[0].strip(), cells[1]) for row, cells in rows[1:] if cells]


def require_class(class_name: str, classes: Sequence[str]) -> None:
    """Refuse a label that is not one of the model's classes."""
    if class_name not in classes:
        raise EquipoiseError(
            "class-unknown", f"there is no class {class_name[:40]!r}", f"there are: {format_class_list(classes)}"
        )


def format_class_list(classes: Sequence[str]) -> str:
    """Format up to `MAX_CLASSES_IN_MESSAGE` class names and the number of others."""
    more = f" and {len(classes) - MAX_CLASSES_IN_MESSAGE} more" if len(classes) > MAX_CLASSES_IN_MESSAGE else ""
    return ", ".join(classes[:MAX_CLASSES_IN_MESSAGE]) + more


def require_folder_name(class_name: str) -> None:
    """Refuse a class whose name cannot be a folder's, or is skipped by the folder workload."""
    if not class_name or class_name.startswith((".", "__")) or any(character in class_name for character in "/\\\0"):
        raise EquipoiseError(
            "labels-invalid",
            f"cannot export class {class_name[:40]!r}: a folder cannot have this name",
            "rename the class (not empty, no slash, no leading dot or __)",
        )
