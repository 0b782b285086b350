"""Ends of logs: bounded, as a terminal leaves them, with time left and the sentence of a failure."""

import pytest

from services.site.jobs_on_ray.job_log import TAIL_BYTES, read_log_tail


@pytest.fixture
def log(tmp_path):
    return tmp_path / "job.log"


def test_a_log_that_is_not_there_yet_is_empty(log):
    tail = read_log_tail(log, 10)
    assert (tail.lines, tail.is_whole, tail.last_line, tail.seconds_left) == ((), True, "", None)


def test_a_long_log_costs_no_more_than_its_end(log):
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    tail = read_log_tail(log, 400)
    assert len(tail.lines) == 400 and tail.last_line == "line 99999" and not tail.is_whole
    log.write_text("x" * 10 * TAIL_BYTES)
    assert len(read_log_tail(log, 400).text) <= TAIL_BYTES


def test_lines_are_as_a_terminal_leaves_them(log):
    log.write_bytes(b"\x1b[1mbold\x1b[0m\r\n10 %\r50 %\rdone\n\xff\x07<b>\n")
    assert read_log_tail(log, 10).lines == ("bold", "done", "\N{REPLACEMENT CHARACTER}\\x07<b>")


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("step 10  examples 99  5/s  1,234 s left at most", 1234.0),
        ("trials 3 done; left 30 s", 30.0),
        ("hello, s left at most", None),
        ("9" * 2000, None),
    ],
)
def test_the_time_left_is_what_the_command_last_said(log, line, seconds):
    log.write_text(f"{line}\n")
    assert read_log_tail(log, 10).seconds_left == seconds


@pytest.mark.parametrize(
    ("text", "sentence", "code"),
    [
        ("a\nerror: cannot read x: no; give y [path-kind]\n", "cannot read x: no; give y", "path-kind"),
        ("Traceback (most recent call last):\n  File\nValueError: broken\n", "broken", ""),
        ("only this\n", "only this", ""),
    ],
)
def test_a_failure_is_the_last_sentence_of_the_command(log, text, sentence, code):
    log.write_text(text)
    assert read_log_tail(log, 10).find_failure() == (sentence, code)
