import pytest

from equipoise.storage.retry import (
    RETRY_SECONDS_VARIABLE,
    StoreUnavailable,
    is_permanent_error,
    read_retry_seconds,
    redacted_error_reason,
    retry_while_unavailable,
    without_retries,
)
from tests.support.errors import raises_code


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "-1", ""])
def test_invalid_retry_time_is_named_in_the_error(monkeypatch, text):
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, text)
    with raises_code("option-format", RETRY_SECONDS_VARIABLE, text):
        retry_while_unavailable(lambda: 1, "s3://bucket/x")


def test_temporarily_unavailable_store_is_retried(monkeypatch, caplog):
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "5")
    errors = iter([OSError("reset by http://name:secret@host/x?token=secret"), TimeoutError("slow"), None])

    def action():
        if error := next(errors):
            raise error
        return "found"

    assert retry_while_unavailable(action, "s3://bucket/x") == "found"
    assert len(caplog.messages) == 2 and "secret" not in caplog.text
    assert "does not answer" in caplog.messages[0] and "answers again" in caplog.messages[1]


def test_retries_are_bounded_and_permanent_errors_fail_at_once(monkeypatch):
    def build_failing_action(error):
        def action():
            raise error

        return action

    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "0.3")
    with pytest.raises(StoreUnavailable):
        retry_while_unavailable(build_failing_action(OSError("gone")), "s3://bucket/x")
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "600")
    with raises_code("store-refused"):
        retry_while_unavailable(build_failing_action(PermissionError("Access Denied")), "s3://bucket/x")
    with pytest.raises(FileNotFoundError):
        retry_while_unavailable(build_failing_action(FileNotFoundError("no key")), "s3://bucket/x")
    with without_retries(), pytest.raises(StoreUnavailable):
        retry_while_unavailable(build_failing_action(OSError("gone")), "s3://bucket/x")


def count_attempts():
    """Return how often an action that always fails is tried."""
    attempts = []

    def action():
        attempts.append(1)
        raise OSError("gone")

    with pytest.raises(StoreUnavailable, match="s3://bucket/x does not answer"):
        retry_while_unavailable(action, "s3://bucket/x")
    return len(attempts)


def test_request_is_made_once_without_time_for_retries(monkeypatch):
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "0")
    assert count_attempts() == 1
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "600")
    with without_retries():
        assert count_attempts() == 1
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "0.3")  # after the block there are retries again
    assert count_attempts() == 2


def test_store_that_answers_at_once_is_not_mentioned(monkeypatch, caplog):
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "5")
    assert retry_while_unavailable(lambda: 7, "s3://bucket/x") == 7
    assert caplog.messages == []


def test_time_that_a_store_was_away_is_within_the_retry_time(monkeypatch, caplog):
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "5")
    errors = iter([OSError("gone"), None])

    def action():
        if error := next(errors):
            raise error

    retry_while_unavailable(action, "s3://bucket/x")
    assert "retrying for up to 5 s" in caplog.messages[0]
    seconds = caplog.messages[1].removeprefix("s3://bucket/x answers again after ").removesuffix(" s")
    assert 0 <= float(seconds) <= 5


def test_retry_time_is_two_minutes_unless_it_is_given(monkeypatch):
    monkeypatch.delenv(RETRY_SECONDS_VARIABLE, raising=False)
    assert read_retry_seconds() == 120
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "0.5")
    assert read_retry_seconds() == 0.5


@pytest.mark.parametrize(
    ("error", "is_permanent"),
    [
        (ValueError("bad"), True),
        (PermissionError("denied"), True),
        (type("NoCredentialsError", (Exception,), {})(), True),
        (type("ParamValidationError", (Exception,), {})(), True),
        (OSError(22, "Invalid argument"), True),
        (OSError(5, "Input/output error"), False),
        (TimeoutError("slow"), False),
        (RuntimeError("closed"), False),
        (type("EndpointConnectionError", (ValueError,), {})(), False),
        (type("UnicodeError", (ValueError,), {})(), False),  # of a host name, while its server is away
    ],
)
def test_errors_that_retries_cannot_resolve(error, is_permanent):
    assert is_permanent_error(error) == is_permanent


def test_reason_is_one_short_line_without_secrets():
    assert redacted_error_reason(OSError("a\n  b\tc")) == "a b c"
    assert redacted_error_reason(TimeoutError()) == "TimeoutError"
    assert redacted_error_reason(OSError("x" * 400)) == "x" * 300
    text = "GET https://name:secret@host/x?sig=secret failed, see 'http://host/y?token=secret'"
    assert redacted_error_reason(OSError(text)) == "GET https://host/x failed, see 'http://host/y'"
