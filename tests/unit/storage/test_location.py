import pytest

from equipoise.storage.location import validate_location
from equipoise.storage.object_store import parse_location

URLS_WITH_PASSWORDS = (
    *("s3://name:secret@bucket/x", "s3://name:sec/secret@bucket/x", "s3://secret@bucket/x"),
    *("s3:/name:secret@bucket/x", "s3:name:secret@bucket/x", "s3://%6eame:secret%40bucket/x"),
    *("name:secret@s3://bucket/x", "file://name:secret@host/x", "abfs://name:secret@box/x", "ftp://name:secret@host/x"),
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3:/bucket/x", "two slashes must follow"),
        ("gs:bucket/x", "two slashes must follow"),
        ("s4://bucket/x", "s4:// is not a supported object store"),
        ("ftp://bucket/x", "ftp:// is not a supported object store"),
        ("file://host/x", "a file URL has three slashes"),
        ("s3://bucket/\udcff", "unprintable characters"),
        ("runs/\x1b[31m", "unprintable characters"),
        ("simplecache::s3://bucket/x", "is a chain of stores"),
        *((text, "has a password in it") for text in URLS_WITH_PASSWORDS),
        ("s3://bucket/x?X-Amz-Signature=secret", "has a query, which may hold a signature"),
        ("s3://", "names no bucket"),
    ],
)
def test_invalid_location_is_refused_without_its_secrets(text, message):
    with pytest.raises(ValueError, match=message) as error:
        validate_location(text)
    assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match=message):
        validate_location(str(parse_location(text)))


@pytest.mark.parametrize("text", ["runs/x", "/runs/x", "s3", "s3://bucket/a@b:c", "abfs://box@account/x", "None"])
def test_valid_location_is_accepted(text):
    validate_location(text)
