import pytest

from equipoise.storage.retry import RETRY_SECONDS_VARIABLE, StoreUnavailable, retry_while_unavailable, without_retries


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "-1", ""])
def test_patience_that_is_no_time_is_named(monkeypatch, text):
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, text)
    with pytest.raises(ValueError, match=f"{RETRY_SECONDS_VARIABLE} must be a number of seconds, got '{text}'"):
        retry_while_unavailable(lambda: 1, "s3://bucket/x")


def test_a_store_that_is_away_for_a_moment_is_waited_for(monkeypatch, caplog):
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "5")
    answers = iter([OSError("reset by http://name:secret@host/x?token=secret"), TimeoutError("slow"), None])

    def action():
        if answer := next(answers):
            raise answer
        return "found"

    assert retry_while_unavailable(action, "s3://bucket/x") == "found"
    assert len(caplog.messages) == 2 and "secret" not in caplog.text
    assert "does not answer" in caplog.messages[0] and "answers again" in caplog.messages[1]


def test_waiting_has_a_bound_and_what_no_waiting_mends_is_said_at_once(monkeypatch):
    def raising(error):
        def action():
            raise error

        return action

    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "0.3")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        retry_while_unavailable(raising(OSError("gone")), "s3://bucket/x")
    monkeypatch.setenv(RETRY_SECONDS_VARIABLE, "600")
    with pytest.raises(ValueError, match="cannot use"):
        retry_while_unavailable(raising(PermissionError("Access Denied")), "s3://bucket/x")
    with pytest.raises(FileNotFoundError):
        retry_while_unavailable(raising(FileNotFoundError("no key")), "s3://bucket/x")
    with without_retries(), pytest.raises(StoreUnavailable):
        retry_while_unavailable(raising(OSError("gone")), "s3://bucket/x")
