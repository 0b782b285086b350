"""Files that are whole or not there: written under a temporary name, then renamed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the name `path` if nothing was raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, facts: Any) -> None:
    """`facts` as JSON that any reader takes: a NaN is refused, not written."""
    text = json.dumps(facts, indent=1, allow_nan=False)
    with whole(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """What `path` holds, or one sentence on why it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, IsADirectoryError) as error:
        raise ValueError(f"{path} is not JSON ({error}): it was damaged, or another program wrote it") from None
