"""Read YAML files of unknown content: return their documents, or raise one sentence on why they cannot be read."""

from pathlib import Path
from typing import Any

import yaml

from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import require_regular_file

REMEDY = "give a cluster file of Ray or a KubeRay manifest"
# PyYAML's constructors also raise these: for an invalid date, a number of 5,000 digits, very deep lists
YAML_ERRORS = (ValueError, LookupError, AttributeError, TypeError, RecursionError, yaml.YAMLError)


def load_yaml_documents(path: Path) -> list[Any]:
    """Return all documents of a YAML file; raise EquipoiseError with one sentence if it cannot be read."""
    try:
        require_regular_file(path)
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except EquipoiseError as error:  # it is not a regular file
        reason = str(error)
    except OSError as error:
        reason = error.strerror or str(error)
    except YAML_ERRORS as error:
        reason = f"{type(error).__name__}: {error}"
    raise EquipoiseError("cluster-file", f"cannot be read as YAML ({' '.join(reason.split())[:300]})", REMEDY)
