import pytest

from equipoise.storage.location import validate_location
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
