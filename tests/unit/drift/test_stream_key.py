"""Keys of streams: their text, and which key covers which."""

import pytest

from equipoise.drift.monitor.stream_key import StreamKey

MODEL = StreamKey("pets", "3")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (MODEL, "pets/3"),
        (StreamKey("pets", "3", "shop"), "pets/3/shop"),
        (StreamKey("pets", "3", "shop/front/left"), "pets/3/shop/front/left"),
    ],
)
def test_key_is_the_same_after_its_text(key, text):
    assert str(key) == text and StreamKey.parse(text) == key


@pytest.mark.parametrize(
    ("other", "is_covered"),
    [
        (MODEL, True),
        (StreamKey("pets", "3", "shop"), True),
        (StreamKey("pets", "30"), False),
        (StreamKey("cars", "3", "shop"), False),
    ],
)
def test_model_covers_itself_and_its_sources(other, is_covered):
    assert MODEL.covers(other) == is_covered


def test_source_covers_itself_alone():
    source = StreamKey("pets", "3", "shop")
    assert source.covers(source)
    assert not source.covers(MODEL) and not source.covers(StreamKey("pets", "3", "street"))
    assert source.all_sources == MODEL
