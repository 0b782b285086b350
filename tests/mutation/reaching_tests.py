"""Find the test files that reach a function, by running each file once and watching what it calls."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.importers import find_test_files, list_test_files
from tests.mutation.kept_results import KeptResults
from tests.mutation.mutations import Mutation
from tests.mutation.warm_pytest import find_called_functions


@dataclass
class TestReach:
    """Test files by the function that they call, and the seconds that each takes."""

    __test__ = False  # no test class of pytest

    files_by_function: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    seconds_by_file: dict[str, float] = field(default_factory=dict)
    failing_files: set[str] = field(default_factory=set)
    """test files that fail without a fault, and are not used"""

    def add_file(self, test_file: str, functions: Sequence[tuple[str, str]] | None, seconds: float) -> None:
        """Add the functions that a test file calls, or None for a file that fails."""
        if functions is None:
            self.failing_files.add(test_file)
            return
        self.seconds_by_file[test_file] = seconds
        for function in functions:
            self.files_by_function.setdefault(function, []).append(test_file)

    def find_test_groups(self, copy: Path, mutation: Mutation) -> list[list[str]]:
        """Return groups of test files for a mutation, the most likely to fail first.

        For code that runs at import, or in other processes only, these are all tests that may import its module.
        """
        reaching = self.files_by_function.get((str(mutation.path), mutation.scope), [])
        if not reaching:
            groups = find_test_files(copy, mutation.path)
            return [[path for path in group if path not in self.failing_files] for group in groups]
        own = [path for path in reaching if mutation.path.stem in Path(path).stem]
        others = sorted(set(reaching) - set(own), key=lambda path: self.seconds_by_file[path])
        return [own, others]


def measure_reach(copies: "SimpleQueue[Path]", num_workers: int, kept: KeptResults) -> TestReach:
    """Run every test file once, each in a process of its own, unless that is kept, and return what they reach."""
    reach = TestReach()

    def run_file(test_file: Path) -> tuple[str, list[tuple[str, str]] | None, float]:
        if str(test_file) in kept.values:
            functions, seconds = kept.values[str(test_file)]
            return str(test_file), [tuple(entry) for entry in functions], seconds
        copy = copies.get()
        try:
            start = time.monotonic()
            calls_file = copy.with_name(f"{'-'.join(test_file.with_suffix('').parts)}.json")
            functions = find_called_functions(copy, str(test_file), calls_file)
            seconds = time.monotonic() - start
            if functions is not None:  # a file that fails may have met a busy machine: the next start tries it again
                kept.add(str(test_file), (functions, seconds))
            return str(test_file), functions, seconds
        finally:
            copies.put(copy)

    first_copy = copies.get()
    copies.put(first_copy)
    with ThreadPoolExecutor(num_workers) as pool:
        for entry in pool.map(run_file, list_test_files(first_copy)):
            reach.add_file(*entry)
    return reach
