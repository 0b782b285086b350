"""Run pytest in processes that have imported the libraries: importing them takes longer than most tests."""

import json
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType

LIBRARIES = ["numpy", "pandas", "plotly.graph_objects", "pytest", "ray", "scipy.stats", "starlette.applications"]
LIBRARIES += ["torch", "torchvision.models", "tyro", "uvicorn"]
IGNORED_WARNING = "ignore::pytest.PytestAssertRewriteWarning"  # of pytest's plugins that a library has imported
NO_TESTS = 5  # exit status of pytest where all tests are slow or thorough ones, which are not run
TEST_TIMEOUT_SECONDS = 240  # of each test: an endless loop fails; a long list or a busy machine does not
ROOT = Path(__file__).parents[2]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(LIBRARIES)


def tests_pass(copy: Path, test_files: list[str]) -> bool:
    """Return whether these test files pass in a copy of the project, each test in time."""
    process = CONTEXT.Process(target=run_pytest, args=(copy, test_files))
    process.start()
    process.join()
    if process.pid:
        with suppress(ProcessLookupError):  # what a test that was ended has left running
            os.killpg(process.pid, signal.SIGKILL)
    return process.exitcode in (0, NO_TESTS)


def run_pytest(copy: Path, test_files: list[str], calls_file: Path | None = None) -> None:
    """End this process with the exit status of pytest; the project is imported from the copy.

    The functions of the project that were called are written to `calls_file`.
    """
    os.setsid()  # what the tests start ends with them
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

    calls = trace_calls(copy) if calls_file else {}
    status = int(pytest.main(arguments))
    if calls_file:
        sys.settrace(None)
        calls_file.write_text(json.dumps(name_functions(copy, [*calls.values()])))
    os._exit(status)  # threads that a fault has left running do not delay the end


def find_called_functions(copy: Path, test_file: str, calls_file: Path) -> list[tuple[str, str]] | None:
    """Return the functions of the project that a test file calls in its own process: path and qualified name.

    None if it fails: it could not tell a fault from none.
    """
    process = CONTEXT.Process(target=run_pytest, args=(copy, [test_file], calls_file))
    process.start()
    process.join()
    if process.exitcode not in (0, NO_TESTS):
        return None
    return [tuple(entry) for entry in json.loads(calls_file.read_text())]


def trace_calls(copy: Path) -> dict[int, CodeType]:
    """Start collecting the code of every called function below a folder, in all threads; return the collection."""
    calls: dict[int, CodeType] = {}  # by identity, because hashing code is slow
    seen: dict[int, CodeType] = {}
    prefix = str(copy)

    def trace(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if id(code) not in seen:
            seen[id(code)] = code  # keeps it alive, so that no other code gets its identity
            if code.co_filename.startswith(prefix):
                calls[id(code)] = code

    threading.settrace(trace)
    sys.settrace(trace)
    return calls


def name_functions(copy: Path, codes: list[CodeType]) -> list[tuple[str, str]]:
    """Return the path of each function's file and its qualified name, as a mutation's scope gives it."""
    return sorted(
        {
            (str(Path(code.co_filename).relative_to(copy)), code.co_qualname.replace(".<locals>", ""))
            for code in codes
            if "<" not in code.co_qualname.replace(".<locals>", "")
        }
    )


def forget_project() -> None:
    """Forget the modules of the project itself, which the tests import from the copy."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_project = name.partition(".")[0] == "tests" or (file and ROOT in Path(file).parents)
        if name not in ("__main__", "__mp_main__") and is_project and ".venv" not in Path(file or "").parts:
            del sys.modules[name]
