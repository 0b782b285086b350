import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from equipoise.command_line import CommandParser, command, describe_os_error
from equipoise.errors import ERROR_CODES, CommandFailed, EquipoiseError
from equipoise.storage.retry import StoreUnavailable
from tests.support.errors import raises_code
from tests.support.ray_cluster import ROOT


def raise_error(error):
    raise error


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            EquipoiseError("path-exists", "cannot write x", "remove it"),
            2,
            "error: cannot write x; remove it [path-exists]",
        ),
        (CommandFailed("a worker died"), 1, "error: a worker died"),
        (StoreUnavailable("s3://b does not answer"), 1, "error: s3://b does not answer; try later"),
        (
            PermissionError(13, "Permission denied", "/x"),
            2,
            "error: cannot use /x: Permission denied; fix that or give another path [path-access]",
        ),
        (
            OSError(28, "No space left on device", "/x"),
            1,
            "error: cannot write /x: No space left on device; make room and run the same command again [disk-full]",
        ),
        (EquipoiseError("disk-full", "cannot write x"), 1, "error: cannot write x [disk-full]"),
        (EquipoiseError("service-unavailable", "no answer"), 1, "error: no answer [service-unavailable]"),
        (
            EquipoiseError("path-missing", "no a\nerror: \x1b[31mb\udcff"),
            2,
            r"error: no a\nerror: \x1b[31mb\udcff [path-missing]",
        ),
        (CommandFailed("it ends:\n\tlast \x1b[0mline"), 1, "error: it ends:\n\tlast \\x1b[0mline"),
        (KeyboardInterrupt(), 143, "\nstopped early"),
    ],
)
def test_mistakes_and_failures_are_one_sentence_and_an_exit_status(error, status, message, capsys):
    main = command(on_stop="stopped early", on_store_failure="try later")(lambda: raise_error(error))
    assert main() == status
    assert capsys.readouterr().err == f"{message}\n"


def test_every_other_exception_is_a_bug_and_keeps_its_traceback():
    main = command()(lambda: int(np.ones(2) @ np.ones(3)))
    with pytest.raises(ValueError, match="mismatch"):
        main()


def test_status_and_arguments_pass_through():
    assert command()(lambda number, *, plus: number + plus)(3, plus=1) == 4


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_command_in_one_sentence_after_its_clean_up(signal_number):
    source = """
import sys, time
from equipoise.command_line import command

@command(on_stop="stopped: nothing was written")
def main():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)

sys.exit(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal_number)
    output, errors = process.communicate()
    assert (process.returncode, output, errors) == (143, "cleaned up\n", "\nstopped: nothing was written\n")


def test_signal_handler_of_the_caller_is_back_after_a_command():
    previous = signal.getsignal(signal.SIGTERM)
    assert command()(lambda: signal.getsignal(signal.SIGTERM) is signal.default_int_handler)() is True
    assert signal.getsignal(signal.SIGTERM) == previous


def test_interrupts_that_the_caller_ignores_stay_ignored():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert command()(lambda: signal.getsignal(signal.SIGINT) == signal.SIG_IGN)() is True
    finally:
        signal.signal(signal.SIGINT, previous)


def test_interrupts_with_a_handler_of_the_caller_stop_a_command():
    previous = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        assert command()(lambda: signal.getsignal(signal.SIGINT) is signal.default_int_handler)() is True
    finally:
        signal.signal(signal.SIGINT, previous)


def test_command_outside_the_main_thread_leaves_signals_alone():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(command()(lambda: 0)).result() == 0


def test_output_that_nobody_reads_ends_the_command_quietly():
    source = (
        "import sys; from equipoise.command_line import command\nsys.exit(command()(lambda: print('x' * 10**6) or 0)())"
    )
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed_pipe:
        result = subprocess.run([sys.executable, "-c", source], stdout=closed_pipe, stderr=subprocess.PIPE, cwd=ROOT)
    assert result.returncode == 141 and result.stderr == b""


def test_an_unknown_error_code_is_a_bug():
    with pytest.raises(KeyError):
        EquipoiseError("path-exist", "cannot write x")


def test_every_error_code_is_used_and_explained():
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("equipoise", "jobs", "services", "dashboards")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "errors.py"
    )
    assert not [code for code, meaning in ERROR_CODES.items() if f'"{code}"' not in sources or len(meaning.split()) < 3]


PRINT_SCRIPT = """
import sys
from equipoise.command_line import command
sys.exit(command()(lambda: print("caf\\xe9 \\udcff") or 0)())
"""


@pytest.mark.parametrize(
    ("encoding", "output"), [("utf-8", "café \\udcff\n".encode()), ("ascii", b"caf\\xe9 \\udcff\n")]
)
def test_what_the_terminal_cannot_show_is_escaped(encoding, output):
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    result = subprocess.run([sys.executable, "-c", PRINT_SCRIPT], capture_output=True, cwd=ROOT, env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, output, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_is_no_error(closed):
    command_line = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", PRINT_SCRIPT]
    result = subprocess.run(command_line, capture_output=True, cwd=ROOT)
    assert result.returncode == 0 and result.stderr == b""


def test_output_onto_a_full_disk_is_a_failure_in_one_sentence():
    with open("/dev/full", "wb") as full_disk:  # noqa: PTH123 - nothing is ever written there
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        results = [
            subprocess.run(
                [sys.executable, "-c", PRINT_SCRIPT],
                stdout=full_disk,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=env,
            )
            for env in (buffered, buffered | {"PYTHONUNBUFFERED": "1"})
        ]
    for result in results:
        assert result.returncode == 1 and result.stderr.count("\n") == 1
        assert result.stderr.endswith("[disk-full]\n")
    assert "standard output" in results[0].stderr


def test_command_that_ignores_further_signals_while_it_ends_stays_so():
    program = """
import os, signal, sys
from equipoise.command_line import command

@command()
def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return 3

status = main()
os.kill(os.getpid(), signal.SIGINT)
sys.exit(status)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 3


def test_an_error_is_the_same_after_another_process_has_sent_it():
    error = EquipoiseError("path-exists", "cannot write x", "remove it")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (copy.code, copy.problem, copy.remedy, str(copy)) == (
        "path-exists",
        "cannot write x",
        "remove it",
        str(error),
    )
    within = error.within("row 3")
    assert (within.code, str(within)) == ("path-exists", "row 3: cannot write x; remove it")
    assert str(EquipoiseError("path-exists", "cannot write x")) == "cannot write x"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("no file is known"), "no file is known"),
        (OSError(2, "No such file or directory"), "[Errno 2] No such file or directory"),
        (OSError(28, "No space left on device"), "cannot write: No space left on device; make room"),
        (OSError(2, "No such file", "x" * 300), f"cannot use {'x' * 200}: No such file; fix that"),
        (OSError(28, "No space left", "x" * 300), f"cannot write {'x' * 200}: No space left; make room"),
    ],
)
def test_errors_of_the_system_are_sentences(error, text):
    assert describe_os_error(error).startswith(text)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], "option-missing"), (["a", "--x"], "option-unknown"), (["a", "--n", "z"], "option-format")],
)
def test_mistakes_in_simple_options_have_codes(arguments, code):
    parser = CommandParser("Try something.")
    parser.prog = "try"  # in a test it is the command of pytest
    parser.add_argument("path")
    parser.add_argument("--n", type=int)
    with raises_code(code, "try --help lists the options"):
        parser.parse_args(arguments)
    assert parser.parse_args(["a", "--n", "3"]).n == 3
