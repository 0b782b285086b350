"""Errors of the operating system about a path, as mistakes that the user can mend."""

import errno

import pytest

from equipoise.storage.path_errors import DISK_FULL_REMEDY, report_path_errors
from equipoise.storage.retry import StoreUnavailable
from tests.support.errors import raises_code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_has_a_code_and_a_remedy_of_its_own(number):
    with raises_code("disk-full", "cannot write x: no room") as raised, report_path_errors("cannot write x", "remedy"):
        raise OSError(number, "no room")
    assert raised.value.remedy == DISK_FULL_REMEDY


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), "path-missing", "No such file"),
        (PermissionError(errno.EACCES, "Permission denied"), "path-access", "Permission denied"),
        (OSError("answer of s3://name:secret@bucket"), "path-access", "answer of s3://bucket"),
        (OSError(), "path-access", "OSError"),
    ],
)
def test_problem_reason_and_remedy_are_in_the_error(error, code, reason):
    with raises_code(code) as raised, report_path_errors("cannot read x", "do this"):
        raise error
    assert str(raised.value).startswith(f"cannot read x: {reason}") and raised.value.remedy == "do this"


def test_store_that_does_not_answer_is_no_mistake_of_the_user():
    with pytest.raises(StoreUnavailable), report_path_errors("cannot read x"):
        raise StoreUnavailable("s3://bucket does not answer")
