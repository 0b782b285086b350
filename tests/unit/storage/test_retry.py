import pytest

from equipoise.storage.retry import RETRY_SECONDS_VARIABLE, StoreUnavailable, retry_while_unavailable, without_retries
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
