"""Find the tests that reach a function, by running each test file once and watching what its tests call."""

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.called_functions import Function, TestCalls
from tests.mutation.importers import find_test_files, list_test_files
from tests.mutation.kept_results import KeptResults
from tests.mutation.mutations import Mutation
from tests.mutation.name_users import find_users_of_line
from tests.mutation.warm_pytest import find_called_functions

MAX_SECONDS = 120.0  # of the tests of a fault beside its own; one that only slower tests would see counts as missed
START_SECONDS = 0.2  # to collect a file of tests


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

        A constant is tested where the functions are that use it. For other code that runs at import, or in other
        processes only, these are all tests that may import its module.
        """
        functions = {(str(mutation.path), mutation.scope)}
        if not mutation.scope:
            functions |= find_users_of_line(copy, mutation.path, mutation.line)
        reaching = {test for function in functions for test in self.tests_by_function.get(function, [])}
        if not reaching:
            groups = [
                [path for path in group if path not in self.failing_files]
                for group in find_test_files(copy, mutation.path)
            ]
            near = [
                path for path in [*groups[1], *groups[2]] if Path(path).parent == find_test_folder(copy, mutation.path)
            ]
            far = {*groups[1], *groups[2]} - {*near}
            return [TestGroup([*groups[0], *near]), TestGroup(take_fastest(far, self.seconds_by_file))]
        seconds_by_file: dict[str, float] = {}
        for test in reaching:
            path = test.partition("::")[0]
            seconds_by_file[path] = seconds_by_file.get(path, START_SECONDS) + self.seconds_by_test[test]
        own = [path for path in sorted(seconds_by_file) if mutation.path.stem in Path(path).stem]
        others = take_fastest([path for path in seconds_by_file if path not in own], seconds_by_file)
        # what a test calls first is kept for those behind it, such as a data set: they see a fault and do not call it
        whole = take_fastest(seconds_by_file, self.seconds_by_file)
        return [TestGroup(own, reaching), TestGroup(others, reaching), TestGroup(whole)]


def find_test_folder(root: Path, module_path: Path) -> Path:
    """Return the folder of the unit tests of a module's package, or of the package around it."""
    folder = Path("tests/unit", *module_path.parts[module_path.parts[0] == "equipoise" : -1])
    while not (root / folder).is_dir():
        folder = folder.parent
    return folder


def take_fastest(files: Collection[str], seconds_by_file: Mapping[str, float]) -> list[str]:
    """Return files from the fastest on, until they take longer than a fault is worth."""
    files = sorted(files, key=lambda path: (seconds_by_file[path], path))
    ends = accumulate(seconds_by_file[path] for path in files)
    return [path for path, end in zip(files, ends, strict=True) if end <= MAX_SECONDS]


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
