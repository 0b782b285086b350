"""Run pytest in processes that have imported the libraries: importing them takes longer than most tests."""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.mutation.called_functions import CallRecorder, TestCalls

LIBRARIES = ["numpy", "pandas", "plotly.graph_objects", "pytest", "ray", "scipy.stats", "starlette.applications"]
LIBRARIES += ["torch", "torchvision.models", "tyro", "uvicorn"]
IGNORED_WARNING = "ignore::pytest.PytestAssertRewriteWarning"  # of pytest's plugins that a library has imported
NO_TESTS = 5  # exit status of pytest where all tests are slow or thorough ones, which are not run
TEST_TIMEOUT_SECONDS = 240  # of each test: an endless loop fails; a long list or a busy machine does not
ROOT = Path(__file__).parents[2]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(LIBRARIES)


def do_tests_pass(copy: Path, test_files: list[str], tests: Collection[str] | None = None) -> bool:
    """Return whether test files pass in a copy of the project, each test in time; `tests` leaves out all others."""
    process = CONTEXT.Process(target=run_pytest, args=(copy, test_files, tests))
    process.start()
    process.join()
    if process.pid:
        with suppress(ProcessLookupError):  # what a test that was ended has left running
            os.killpg(process.pid, signal.SIGKILL)
    return process.exitcode in (0, NO_TESTS)


class TestSelection:
    """A pytest plugin that runs some tests only. A test that is not found is none that fails, unlike in arguments."""

    __test__ = False  # no test class of pytest

    def __init__(self, tests: Collection[str]) -> None:
        self.tests = frozenset(tests)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the selected tests."""
        items[:] = [item for item in items if item.nodeid in self.tests]


def run_pytest(
    copy: Path, test_files: list[str], tests: Collection[str] | None = None, calls_file: Path | None = None
) -> None:
    """End this process with the exit status of pytest; the project is imported from the copy.

    What each test calls is written to `calls_file`.
    """
    os.setsid()  # what the tests start ends with them
    multiprocessing.set_start_method("fork", force=True)  # as where pytest is started, and not as here
    forget_project()
    os.chdir(copy)
    sys.path[:] = [str(copy), *(path for path in sys.path if path and Path(path) != ROOT)]
    os.environ["PYTHONPATH"] = str(copy)  # for the programs that tests start
    arguments = ["-q", "-x", "-p", "no:cacheprovider", "-W", IGNORED_WARNING, "-m", "not slow and not thorough"]
    arguments += ["-o", f"faulthandler_timeout={TEST_TIMEOUT_SECONDS}", "-o", "faulthandler_exit_on_timeout=true"]
    arguments += test_files
    sys.argv = ["pytest", *arguments]
    with open(os.devnull, "w") as nothing:  # noqa: PTH123 - a device
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)
    import pytest

    recorder = CallRecorder(copy) if calls_file else None
    if recorder:
        recorder.tracer.start()
    plugins = [recorder] if recorder else [TestSelection(tests)] if tests is not None else []
    status = int(pytest.main(arguments, plugins=plugins))
    if recorder and calls_file:
        recorder.tracer.stop()
        calls_file.write_text(json.dumps(recorder.read_calls().to_json()), encoding="utf-8")
    os._exit(status)  # threads that a fault has left running do not delay the end


def find_called_functions(copy: Path, test_file: str, calls_file: Path) -> TestCalls | None:
    """Return what the tests of a file call in their own process; None if one fails: it could not tell a fault."""
    process = CONTEXT.Process(target=run_pytest, args=(copy, [test_file], None, calls_file))
    process.start()
    process.join()
    if process.exitcode not in (0, NO_TESTS):
        return None
    return TestCalls.from_json(json.loads(calls_file.read_text(encoding="utf-8")))


def forget_project() -> None:
    """Forget the modules of the project itself, which the tests import from the copy."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_project = name.partition(".")[0] == "tests" or (file and ROOT in Path(file).parents)
        if name not in ("__main__", "__mp_main__") and is_project and ".venv" not in Path(file or "").parts:
            del sys.modules[name]
