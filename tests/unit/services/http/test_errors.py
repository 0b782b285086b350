"""Rejections of requests: their HTTP statuses, what they repeat of a request, and when to try again."""

from http import HTTPStatus

import pytest

from services.http import errors
from services.http.errors import RequestRejected

LONG = "§" * 1000  # a character that no message has by itself

REJECTIONS = {
    HTTPStatus.BAD_REQUEST: [errors.not_http()],
    HTTPStatus.UNAUTHORIZED: [errors.key_is_missing()],
    HTTPStatus.FORBIDDEN: [errors.other_site_asks()],
    HTTPStatus.NOT_FOUND: [
        errors.path_is_unknown("/x"),
        errors.page_is_unknown("/x"),
        errors.model_is_not_named("a, b"),
        errors.model_is_unknown("x", "a, b"),
        errors.version_is_unknown("m", "v1", "v2"),
        errors.nothing_to_compare("m"),
        errors.drift_is_off(),
        errors.captures_are_off(),
        errors.capture_is_unknown(ValueError("there is no capture 7")),
    ],
    HTTPStatus.METHOD_NOT_ALLOWED: [errors.method_is_not_allowed("GET", "/x")],
    HTTPStatus.REQUEST_TIMEOUT: [errors.body_is_slow(10.0), errors.head_is_slow(10.0)],
    HTTPStatus.CONFLICT: [errors.page_cannot_be_shown("run", "it is damaged")],
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: [
        errors.body_is_too_large(10),
        errors.unpacked_body_is_too_large(10),
        errors.picture_is_too_large(10, "it has 4x4"),
        errors.too_many_pictures(10, 11),
        errors.tensor_is_too_large("x", 10),
    ],
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: [errors.encoding_is_unknown("br"), errors.content_type_is_unknown("text/csv")],
    HTTPStatus.TOO_MANY_REQUESTS: [errors.queue_is_full(3), errors.too_much_is_sent()],
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: [errors.head_is_too_large(10)],
    HTTPStatus.NOT_IMPLEMENTED: [errors.counts_are_elsewhere()],
    HTTPStatus.SERVICE_UNAVAILABLE: [
        errors.turn_came_too_late(),
        errors.monitor_is_away(),
        errors.captures_are_away(OSError("secret path")),
    ],
}


@pytest.mark.parametrize("status", REJECTIONS, ids=lambda status: str(int(status)))
def test_rejection_has_the_status_of_its_reason(status):
    for rejection in REJECTIONS[status]:
        assert rejection.status == status, rejection
        assert isinstance(rejection.message, str) and len(rejection.message) > 10
        assert rejection.reason and "." not in rejection.reason


def test_only_temporary_rejections_say_when_to_try_again():
    every = [rejection for rejections in REJECTIONS.values() for rejection in rejections]
    seconds = {rejection.message: rejection.retry_after_seconds for rejection in every if rejection.retry_after_seconds}
    temporary = REJECTIONS[HTTPStatus.TOO_MANY_REQUESTS] + REJECTIONS[HTTPStatus.SERVICE_UNAVAILABLE]
    assert seconds.keys() == {rejection.message for rejection in temporary}
    assert errors.queue_is_full(3).retry_after_seconds == errors.too_much_is_sent().retry_after_seconds == 1
    assert errors.turn_came_too_late().retry_after_seconds == 1
    assert errors.monitor_is_away().retry_after_seconds == 5  # a restart of the actor takes seconds
    assert errors.captures_are_away(OSError()).retry_after_seconds == 5


def test_every_described_status_is_one_that_rejections_have():
    assert errors.REJECTION_DESCRIPTIONS.keys() < REJECTIONS.keys()
    # what a request with a body may meet before or after it is read; the others have no entry in the OpenAPI document
    assert REJECTIONS.keys() - errors.REJECTION_DESCRIPTIONS.keys() == {405, 409, 431, 501}


@pytest.mark.parametrize(
    ("rejection", "expected"),
    [
        (errors.path_is_unknown(LONG), 80),
        (errors.page_is_unknown(LONG), 80),
        (errors.model_is_unknown(LONG, "a"), 80),
        (errors.version_is_unknown("m", "v1", LONG), 80),
        (errors.method_is_not_allowed("GET", LONG), 80),
        (errors.encoding_is_unknown(LONG), 40),
        (errors.content_type_is_unknown(LONG), 60),
    ],
    ids=lambda value: str(value)[:25],
)
def test_long_text_of_a_client_is_cut(rejection, expected):
    assert rejection.message.count("§") == expected


@pytest.mark.parametrize(
    ("rejection", "mentioned"),
    [
        (errors.model_is_not_named("cats, dogs"), ["cats, dogs"]),
        (errors.model_is_unknown("x", "cats, dogs"), ["'x'", "cats, dogs"]),
        (errors.version_is_unknown("pets", "v1", "v2"), ["pets", "version v1", "'v2'"]),
        (errors.nothing_to_compare("pets"), ["pets"]),
        (errors.capture_is_unknown(ValueError("no such id")), ["no such id"]),
        (errors.method_is_not_allowed("PUT", "/x"), ["PUT", "'/x'"]),
        (errors.body_is_slow(2.5), ["2.5 s"]),
        (errors.head_is_slow(10.0), ["10 s"]),
        (errors.page_cannot_be_shown("run 7", "it is damaged"), ["run 7", "it is damaged"]),
        (errors.body_is_too_large(1234), ["1234 bytes"]),
        (errors.unpacked_body_is_too_large(1234), ["1234 bytes"]),
        (errors.picture_is_too_large(1234, "it has 40x50"), ["1234 pixels", "40x50"]),
        (errors.too_many_pictures(32, 64), ["64 images", "limit is 32"]),
        (errors.tensor_is_too_large("pictures", 99), ["'pictures'", "99 elements"]),
        (errors.queue_is_full(128), ["128 requests"]),
        (errors.head_is_too_large(32768), ["32768 bytes"]),
    ],
    ids=lambda value: str(value)[:25],
)
def test_message_names_what_was_sent_and_the_limit(rejection, mentioned):
    assert [text for text in mentioned if text not in rejection.message] == []


def test_error_of_the_captures_is_named_by_its_type_only():
    message = errors.captures_are_away(PermissionError("/home/secret")).message
    assert "PermissionError" in message and "secret" not in message


def test_message_is_cut_beyond_280_characters():
    assert RequestRejected(400, "x" * 280).message == "x" * 280
    cut = RequestRejected(400, "x" * 281).message
    assert cut.count("x") == 280 and cut.endswith("...")
    rejection = RequestRejected(400, "short")
    assert (rejection.message, rejection.reason, rejection.retry_after_seconds) == ("short", "input", None)
    assert str(rejection) == "short"


def test_what_a_client_sent_cannot_break_the_message():
    rejection = RequestRejected(400, "got a\nb\x1b[31m\ud800\u202e, ä日")
    assert rejection.message.isprintable() and "ä日" in rejection.message
    assert rejection.message.encode().decode() == rejection.message
