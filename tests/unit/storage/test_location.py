import pytest

from equipoise.storage.location import redact_scheme, require_lasting_store, split_scheme, validate_location
from equipoise.storage.object_store import parse_location
from tests.support.errors import raises_code

URLS_WITH_PASSWORDS = (
    *("s3://name:secret@bucket/x", "s3://name:sec/secret@bucket/x", "s3://secret@bucket/x"),
    *("s3:/name:secret@bucket/x", "s3:name:secret@bucket/x", "s3://%6eame:secret%40bucket/x"),
    *("name:secret@s3://bucket/x", "file://name:secret@host/x", "abfs://name:secret@box/x", "ftp://name:secret@host/x"),
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("s3:/bucket/x", "url-format"),
        ("gs:bucket/x", "url-format"),
        ("s4://bucket/x", "store-unsupported"),
        ("ftp://bucket/x", "store-unsupported"),
        ("file://host/x", "url-format"),
        ("s3://bucket/\udcff", "url-format"),
        ("runs/\x1b[31m", "url-format"),
        ("simplecache::s3://bucket/x", "store-unsupported"),
        *((text, "url-secret") for text in URLS_WITH_PASSWORDS),
        ("s3://bucket/x?X-Amz-Signature=secret", "url-secret"),
        ("s3://bucket/x#secret", "url-secret"),
        ("s3://", "url-format"),
    ],
)
def test_invalid_location_is_refused_without_its_secrets(text, code):
    with raises_code(code) as error:
        validate_location(text)
    assert "secret" not in str(error.value)
    with raises_code(code):
        validate_location(str(parse_location(text)))


@pytest.mark.parametrize("text", ["runs/x", "/runs/x", "s3", "s3://bucket/a@b:c", "abfs://box@account/x", "None"])
def test_valid_location_is_accepted(text):
    validate_location(text)


def test_store_that_forgets_everything_is_refused():
    with raises_code("store-unsupported", "memory://bucket/x", "s3://, gs://") as raised:
        require_lasting_store("memory://bucket/x")
    assert "memory" not in raised.value.remedy
    for location in ("s3://bucket/memory:", "memory", "runs/x"):
        require_lasting_store(location)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("s3:/bucket/x", ("s3", "bucket/x")),
        ("https:////host/x", ("https", "host/x")),
        ("file:///x", ("file", "x")),
        ("ftp://host/x://y", ("ftp", "host/x://y")),
        ("a/b:c", ("", "a/b:c")),
        ("", ("", "")),
    ],
)
def test_scheme_is_split_from_the_rest(text, parts):
    assert split_scheme(text) == parts


def test_text_before_the_slashes_is_shown_if_it_can_be_a_scheme():
    assert redact_scheme("s3") == redact_scheme("simplecache::s3") == "s3://"
    assert redact_scheme("a23456789.+-") == "a23456789.+-://"
    for secret in ("name:secret", "a23456789.123", "", "se cret"):
        assert redact_scheme(secret) == "...://"
