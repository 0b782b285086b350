"""Results of a run that may be interrupted: the same command goes on from them, with the project as it was."""

import json
import threading
from pathlib import Path
from typing import Any

REACH_FILE, VERDICT_FILE = "reach.jsonl", "verdicts.jsonl"


class KeptResults:
    """Lines of JSON by key in a file; a line that an interruption cut off does not count."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.values: dict[str, Any] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            self.values[entry["key"]] = entry["value"]

    def add(self, key: str, value: object) -> None:
        """Keep the value of a key."""
        with self.lock, self.path.open("a", encoding="utf-8") as file:
            self.values[key] = value
            file.write(f"\n{json.dumps({'key': key, 'value': value})}")  # a line of its own, after one that was cut off
