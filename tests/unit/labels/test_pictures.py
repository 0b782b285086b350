"""Pictures for the page: upright, small enough, and named by what they are."""

import io
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from equipoise.errors import EquipoiseError
from equipoise.images.orientation import EXIF_ORIENTATION_TAG
from equipoise.labels.pictures import MAX_SIDE_PIXELS, add_picture, list_pictures, make_page_copy
from tests.support.errors import raises_code


def encode_image(image, kind="JPEG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def open_copy(copy):
    return Image.open(io.BytesIO(copy.content))


def test_photograph_is_shown_upright_with_its_size_as_seen(tmp_path):
    image = Image.new("RGB", (300, 200), "white")
    image.paste("red", (0, 0, 150, 200))  # turned by 90 degrees, the upper half
    exif = Image.Exif()
    exif[EXIF_ORIENTATION_TAG] = 6
    image.save(tmp_path / "a.jpg", exif=exif, quality=95)
    copy = make_page_copy(tmp_path / "a.jpg")
    assert (copy.width, copy.height) == (200, 300) == open_copy(copy).size
    top, bottom = (open_copy(copy).convert("RGB").getpixel((100, y)) for y in (30, 270))
    assert top[1] < 60 and bottom[1] > 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_picture_of_fifty_megapixels_is_shown_small_with_its_own_coordinates(tmp_path, kind):
    exif = Image.Exif()
    exif[EXIF_ORIENTATION_TAG] = 8
    Image.new("RGB", (8660, 5774), "#336699").save(tmp_path / "large", kind, exif=exif, compress_level=1)
    copy = make_page_copy(tmp_path / "large")
    assert (copy.width, copy.height) == (5774, 8660)
    assert max(open_copy(copy).size) <= MAX_SIDE_PIXELS and len(copy.content) < 2 << 20


def test_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path):
    Image.new("1", (10_000, 8_001)).save(tmp_path / "a.png")
    with pytest.raises(EquipoiseError) as refusal:
        make_page_copy(tmp_path / "a.png")
    assert refusal.value.code == "image-undecodable" and "10000x8001" in str(refusal.value)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_every_kind_of_pixels_is_shown(tmp_path, mode):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    Image.new(mode, (20, 10)).save(tmp_path / "a", kind)
    assert open_copy(make_page_copy(tmp_path / "a")).size == (20, 10)


@pytest.mark.parametrize("content", [b"", b"text", encode_image(Image.new("RGB", (90, 90)))[:400]])
def test_damaged_pictures_are_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "a.jpg").write_bytes(content)
    with raises_code("image-undecodable"):
        make_page_copy(tmp_path / "a.jpg")


def test_pictures_are_found_at_any_depth_without_hidden_ones(tmp_path):
    for name in ("b.JPG", "a/1.png", "a/.hidden.png", ".git/x.png", "notes.txt", "c.webp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list_pictures(tmp_path) == ["a/1.png", "b.JPG", "c.webp"]


def test_added_picture_is_kept_once_as_it_is_under_a_safe_name(tmp_path):
    content = encode_image(Image.new("RGB", (30, 20), "red"), "PNG")
    name = add_picture(tmp_path, content, "../My shelf.exe")
    assert name.startswith("My-shelf-") and name.endswith(".png") and (tmp_path / name).read_bytes() == content
    assert add_picture(tmp_path, content, "../My shelf.exe") == name and list_pictures(tmp_path) == [name]
    assert add_picture(tmp_path, content, "...").startswith("picture-")
    with pytest.raises(EquipoiseError) as refusal:
        add_picture(tmp_path, content[:50], "a.png")
    assert refusal.value.code == "image-undecodable" and len(list_pictures(tmp_path)) == 2


def test_photograph_with_further_pictures_in_it_is_added(tmp_path):
    content = encode_image(Image.new("RGB", (30, 20)), "MPO", save_all=True, append_images=[Image.new("RGB", (30, 20))])
    name = add_picture(tmp_path, content, "phone.jpg")
    assert name.endswith(".jpg") and make_page_copy(tmp_path / name).width == 30


def test_picture_of_too_many_pixels_is_refused_with_its_size(tmp_path):
    with raises_code("image-undecodable", "cannot add 'a.png': it has 9000x9000 pixels, more than", "make it smaller"):
        add_picture(tmp_path, encode_image(Image.new("1", (9000, 9000)), "PNG"), "a.png")


def test_picture_that_many_add_at_once_is_there_once(tmp_path):
    content = encode_image(Image.new("RGB", (300, 200), "red"), "PNG")
    with ThreadPoolExecutor(8) as pool:
        names = {*pool.map(lambda _: add_picture(tmp_path, content, "a.png"), range(40))}
    assert list_pictures(tmp_path) == [*names] and [path.read_bytes() for path in tmp_path.iterdir()] == [content]
