"""Find the tests that reach a function, by running each test file once and watching what its tests call."""

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.called_functions import Function, TestCalls
from tests.mutation.importers import find_test_files, list_test_files
from tests.mutation.kept_results import KeptResults
from tests.mutation.mutations import Mutation
from tests.mutation.warm_pytest import find_called_functions


@dataclass(frozen=True)
class TestGroup:
    """Test files that are run together, and which of their tests; all of them where that is None."""

    __test__ = False  # no test class of pytest

    files: list[str]
    tests: Collection[str] | None = None


@dataclass
class TestReach:
    """Tests by the function that they call, and the seconds that each takes."""

    __test__ = False  # no test class of pytest

    tests_by_function: dict[Function, list[str]] = field(default_factory=dict)
    seconds_by_test: dict[str, float] = field(default_factory=dict)
    seconds_by_file: dict[str, float] = field(default_factory=dict)
    failing_files: set[str] = field(default_factory=set)
    """test files that fail without a fault, and are not used"""

    def add_file(self, test_file: str, calls: TestCalls | None, seconds: float) -> None:
        """Add the functions that the tests of a file call, or None for a file that fails."""
        if calls is None:
            self.failing_files.add(test_file)
            return
        self.seconds_by_file[test_file] = seconds
        self.seconds_by_test |= calls.seconds
        for test, functions in calls.functions.items():
            for function in functions:
                self.tests_by_function.setdefault(function, []).append(test)

    def find_test_groups(self, copy: Path, mutation: Mutation) -> list[TestGroup]:
        """Return groups of tests for a mutation, the most likely to fail first.

        For code that runs at import, or in other processes only, these are all tests that may import its module.
        """
        reaching = self.tests_by_function.get((str(mutation.path), mutation.scope), [])
        if not reaching:
            groups = find_test_files(copy, mutation.path)
            return [TestGroup([path for path in group if path not in self.failing_files]) for group in groups]
        seconds_by_file: dict[str, float] = {}
        for test in reaching:
            path = test.partition("::")[0]
            seconds_by_file[path] = seconds_by_file.get(path, 0) + self.seconds_by_test[test]
        files = sorted(seconds_by_file, key=lambda path: seconds_by_file[path])
        own = [path for path in files if mutation.path.stem in Path(path).stem]
        return [TestGroup(own, reaching), TestGroup([path for path in files if path not in own], reaching)]


def measure_reach(copies: "SimpleQueue[Path]", num_workers: int, kept: KeptResults) -> TestReach:
    """Run every test file once, each in a process of its own, unless that is kept, and return what they reach."""
    reach = TestReach()

    def run_file(test_file: Path) -> tuple[str, TestCalls | None, float]:
        if str(test_file) in kept.values:
            calls, seconds = kept.values[str(test_file)]
            return str(test_file), TestCalls.from_json(calls), seconds
        copy = copies.get()
        try:
            start = time.monotonic()
            calls_file = copy.with_name(f"{'-'.join(test_file.with_suffix('').parts)}.json")
            calls = find_called_functions(copy, str(test_file), calls_file)
            seconds = time.monotonic() - start
            if calls is not None:  # a file that fails may have met a busy machine: the next start tries it again
                kept.add(str(test_file), (calls.to_json(), seconds))
            return str(test_file), calls, seconds
        finally:
            copies.put(copy)

    first_copy = copies.get()
    copies.put(first_copy)
    with ThreadPoolExecutor(num_workers) as pool:
        for entry in pool.map(run_file, list_test_files(first_copy)):
            reach.add_file(*entry)
    return reach
