"""YAML of others, whatever it holds: its documents, or one sentence on why it cannot be read."""

from pathlib import Path
from typing import Any

import yaml

from equipoise.storage.atomic import require_regular_file

# what PyYAML's own constructors let through: a date that is none, a number of 5,000 digits, lists without end
YAML_ERRORS = (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError, yaml.YAMLError)


def load_yaml_documents(path: Path) -> list[Any]:
    """All of a file."""
    try:
        require_regular_file(path)
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except YAML_ERRORS as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"cannot be read as YAML ({' '.join(reason.split())[:300]})") from None
