"""Run pytest in processes that have imported the libraries: importing them takes longer than most tests."""

import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

LIBRARIES = ["numpy", "pandas", "plotly.graph_objects", "pytest", "ray", "scipy.stats", "starlette.applications"]
LIBRARIES += ["torch", "torchvision.models", "tyro", "uvicorn"]
IGNORED_WARNING = "ignore::pytest.PytestAssertRewriteWarning"  # of pytest's plugins that a library has imported
NO_TESTS = 5  # exit status of pytest where all tests are slow ones, which are not run
TEST_TIMEOUT_SECONDS = 120  # of each test: an endless loop is a failure, a long list of tests is not
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


def run_pytest(copy: Path, test_files: list[str]) -> None:
    """End this process with the exit status of pytest; the project is imported from the copy."""
    os.setsid()  # what the tests start ends with them
    forget_project()
    os.chdir(copy)
    sys.path[:] = [str(copy), *(path for path in sys.path if path and Path(path) != ROOT)]
    os.environ["PYTHONPATH"] = str(copy)  # for the programs that tests start
    arguments = ["-q", "-x", "-p", "no:cacheprovider", "-W", IGNORED_WARNING, "-m", "not slow", *test_files]
    arguments += ["-o", f"faulthandler_timeout={TEST_TIMEOUT_SECONDS}", "-o", "faulthandler_exit_on_timeout=true"]
    sys.argv = ["pytest", *arguments]
    with open(os.devnull, "w") as nothing:  # noqa: PTH123 - a device
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)
    import pytest

    status = int(pytest.main(arguments))
    os._exit(status)  # threads that a fault has left running do not delay the end


def forget_project() -> None:
    """Forget the modules of the project itself, which the tests import from the copy."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_project = name.partition(".")[0] == "tests" or (file and ROOT in Path(file).parents)
        if name not in ("__main__", "__mp_main__") and is_project and ".venv" not in Path(file or "").parts:
            del sys.modules[name]
