"""Record which functions of the project each test calls in its own process."""

import sys
import threading
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

Function = tuple[str, str]
"""path of its file and qualified name"""


class CallTracer:
    """Collects the code of every function below a folder that is called in any thread."""

    def __init__(self, folder: Path) -> None:
        self.prefix = str(folder)
        self.calls: dict[int, CodeType] = {}  # by identity, because hashing code is slow
        self.seen: dict[int, CodeType] = {}

    def start(self) -> None:
        """Trace this thread and those that begin from now on; a test may have ended the tracing of its thread."""
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def stop(self) -> None:
        """Trace nothing more."""
        threading.settrace(None)  # type: ignore[arg-type]
        sys.settrace(None)

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        """Note the code of a call, once."""
        code = frame.f_code
        if id(code) not in self.seen:
            self.seen[id(code)] = code  # keeps it alive, so that no other code gets its identity
            if code.co_filename.startswith(self.prefix):
                self.calls[id(code)] = code

    def take(self) -> list[CodeType]:
        """Return what was called since the last time."""
        taken = [*self.calls.values()]
        self.calls, self.seen = {}, {}
        return taken


@dataclass
class TestCalls:
    """What the tests of a file call, by the identity of each test, and the seconds that each takes."""

    __test__ = False  # no test class of pytest

    functions: dict[str, list[Function]]
    seconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return data for JSON, in which each function is written once."""
        names = sorted({function for functions in self.functions.values() for function in functions})
        indices = {name: index for index, name in enumerate(names)}
        calls = {test: [indices[function] for function in functions] for test, functions in self.functions.items()}
        return {"functions": names, "calls": calls, "seconds": self.seconds}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TestCalls":
        """Restore what `to_json` returned."""
        names = [(path, name) for path, name in data["functions"]]
        calls = {test: [names[index] for index in indices] for test, indices in data["calls"].items()}
        return cls(calls, data["seconds"])


class CallRecorder:
    """A pytest plugin that records what each test calls.

    What is called while the file is imported, and by fixtures that several tests share, counts for all of its tests.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.tracer = folder, CallTracer(folder)
        self.calls: dict[str, list[CodeType]] = {}
        self.seconds: dict[str, float] = {}
        self.shared: list[CodeType] = []

    def pytest_collection_modifyitems(self) -> None:
        """Separate what was called while tests were collected."""
        self.shared += self.tracer.take()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record the calls and the seconds of a test, its setup and teardown included."""
        self.tracer.start()
        start = time.monotonic()
        result = yield
        self.seconds[item.nodeid] = time.monotonic() - start
        self.calls[item.nodeid] = self.tracer.take()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Separate the calls of a fixture that several tests share."""
        if fixturedef.scope == "function":
            return (yield)
        before = self.tracer.take()
        try:
            return (yield)
        finally:
            self.shared += self.tracer.take()
            self.tracer.calls = {id(code): code for code in before}

    def read_calls(self) -> TestCalls:
        """Return what was recorded."""
        functions = {test: name_functions(self.folder, [*codes, *self.shared]) for test, codes in self.calls.items()}
        return TestCalls(functions, self.seconds)


def name_functions(folder: Path, codes: Iterable[CodeType]) -> list[Function]:
    """Return the path of each function's file and its qualified name, as a mutation's scope gives it."""
    return sorted(
        {
            (str(Path(code.co_filename).relative_to(folder)), code.co_qualname.replace(".<locals>", ""))
            for code in codes
            if "<" not in code.co_qualname.replace(".<locals>", "")
        }
    )
