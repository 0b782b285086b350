"""The page that runs a published model itself gives the boxes and scores of the bundle, for pictures of any kind."""

import base64
import hashlib
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from equipoise.bundle.bundle import load_bundle
from equipoise.images.letterbox import letterbox_image
from tests.support.bundles import publish_run, train_short_run
from tests.support.chromium import Browser, find_accessibility_violations, find_overflowing_elements
from tests.support.detector_service import encode_picture
from tests.support.exported_pages import ask_page, export_page, serve_folder, vary_picture
from tests.support.ray_cluster import ROOT
from tests.support.square_detector import draw_squares, publish_squares

DIGIT = ROOT / "examples" / "digit.png"
BOX_COLORS = np.array([(0xE6, 0x9F, 0x00), (0x56, 0xB4, 0xE9), (0x00, 0x9E, 0x73)])  # of the first three labels
DECODERS_DIFFER = {".jpg", ".webp"}
"""formats whose pixels a browser may round in another way than Pillow"""


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squares")
    return publish_squares(folder)


@pytest.fixture(scope="module")
def squares_page(squares, tmp_path_factory):
    folder = export_page(squares, tmp_path_factory.mktemp("squares-page") / "page")
    with serve_folder(folder) as url:
        yield url


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    return publish_run(train_short_run(folder / "run"), folder / "bundle")


@pytest.fixture(scope="module")
def digits_page(digits, tmp_path_factory):
    folder = export_page(digits, tmp_path_factory.mktemp("digits-page") / "page")
    with serve_folder(folder) as url:
        yield url


def draw_scene(seed=98):
    """Return a picture (height, width, 3) with squares."""
    return draw_squares(3, seed)[0][2].permute(1, 2, 0).numpy()


def list_box_values(boxes):
    return np.array([[box[key] for key in ("x", "y", "width", "height")] for box in boxes]).reshape(-1, 4)


def test_boxes_are_those_of_the_bundle(browser, squares, squares_page):
    bundle, counts = load_bundle(squares), []
    with browser.page(squares_page) as page:
        pictures = [picture for seed in (98, 99) for picture in vary_picture(draw_scene(seed)).items()]
        for name, data in pictures:
            [expected] = bundle.find_boxes([data])
            answer = ask_page(page, name, data)
            boxes = [box for box in answer["boxes"] if box["score"] >= bundle.threshold]
            assert [box["label"] for box in boxes] == [box.label for box in expected], name
            expected_values = np.array([[box.x, box.y, box.width, box.height] for box in expected]).reshape(-1, 4)
            pixels = 1.0 if any(name.endswith(suffix) for suffix in DECODERS_DIFFER) else 1e-3
            assert np.allclose(list_box_values(boxes), expected_values, rtol=0, atol=pixels), name
            score_error = 0.01 if pixels == 1.0 else 1e-5
            scores = [box["score"] for box in boxes]
            assert np.allclose(scores, [box.score for box in expected], rtol=0, atol=score_error), name
            counts.append(len(boxes))
    # squares that are tiny or stretched are found by neither
    assert len(counts) >= 20 and np.count_nonzero(counts) >= 15, counts


def test_scores_are_those_of_the_bundle(browser, digits, digits_page):
    bundle = load_bundle(digits)
    pixels = np.asarray(Image.open(DIGIT).convert("RGB"))
    with browser.page(digits_page) as page:
        for name, data in vary_picture(pixels).items():
            expected = bundle.predict(bundle.preprocess([data]))
            scores = ask_page(page, name, data)["scores"]
            assert list(scores) == bundle.classes and max(scores, key=scores.get) == expected.labels[0], name
            error = 0.01 if any(name.endswith(suffix) for suffix in DECODERS_DIFFER) else 1e-5
            assert np.allclose([*scores.values()], expected.scores[0].tolist(), rtol=0, atol=error), name


def test_pictures_are_scaled_to_the_bytes_of_pillow(browser, squares_page):
    rng = np.random.default_rng(3)
    sizes = [
        (3, 500),
        (500, 3),
        (90, 300),
        (300, 90),
        (211, 137),
        (137, 211),
        (1000, 200),
        (30, 20),
        (20, 30),
        (48, 47),
    ]
    script = """async ([bytes, size]) => {
        const { decodePicture, preparePicture } = await import("./pixels.js");
        const bitmap = await decodePicture(new Blob([Uint8Array.from(atob(bytes), (char) => char.charCodeAt(0))]), 1e7);
        const input = { channels: 3, width: size, height: size, fit: "letterbox", fill: [124, 116, 104] };
        const digest = await crypto.subtle.digest("SHA-256", preparePicture(bitmap, input).tensor);
        return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
    }"""
    with browser.page(squares_page) as page:
        for width, height in sizes:
            pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
            encoded = base64.b64encode(encode_picture(pixels)).decode()
            for side in (16, 61, 320):
                expected, _ = letterbox_image(Image.fromarray(pixels), side)
                digest = hashlib.sha256(expected.tobytes()).hexdigest()
                assert page.evaluate(script, [encoded, side]) == digest, (width, height, side)


@pytest.mark.parametrize(("width", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_answer_is_drawn_and_the_slider_chooses_its_boxes(browser, squares, squares_page, width, scheme):
    data = encode_picture(draw_scene())
    [expected] = load_bundle(squares).find_boxes([data])
    with browser.page(squares_page, width, color_scheme=scheme, bypass_csp=True) as page:  # axe is a script of ours
        hosts = set()
        page.on("request", lambda request: hosts.add(request.url[: len(squares_page)]))
        assert find_accessibility_violations(page) == []
        answer = ask_page(page, "scene.png", data)
        assert f"Found {len(expected)} box" in page.locator("#state").inner_text()
        assert "ms for the model" in page.locator("#state").inner_text()
        assert page.locator("#answers td:first-child").all_inner_texts() == [box.label for box in expected]
        box = expected[0]
        script = "([x, y]) => [...document.querySelector('canvas').getContext('2d').getImageData(x - 3, y, 7, 1).data]"
        pixels = page.evaluate(script, [round(box.x + box.width), round(box.y + box.height / 2)])
        column, row = round(box.x + box.width), round(box.y + box.height / 2)
        drawn, bare = np.reshape(pixels, (7, 4))[:, :3], draw_scene()[row, column - 3 : column + 4]
        assert np.abs(drawn - bare.astype(int)).max() > 60, pixels  # a line crosses the right side
        distances = np.abs(drawn[:, None] - BOX_COLORS).max(2)
        assert distances.min() < 80, pixels  # in the colour of a label
        assert find_overflowing_elements(page) == [] and find_accessibility_violations(page) == []
        page.locator("#threshold").focus()
        page.keyboard.press("Home")
        all_boxes = [box for box in answer["boxes"] if box["score"] >= 0.01]
        assert f"Found {len(all_boxes)} box" in page.locator("#state").inner_text()
        page.keyboard.press("End")
        assert page.locator("#threshold-value").inner_text() == "99 %"
        assert (
            f"Found {sum(box['score'] >= 0.99 for box in answer['boxes'])} box" in page.locator("#state").inner_text()
        )
        assert hosts <= {squares_page}


def test_classifier_shows_its_best_class_first(browser, digits_page):
    with browser.page(digits_page, "phone", color_scheme="dark", bypass_csp=True) as page:
        scores = ask_page(page, "digit.png", DIGIT.read_bytes())["scores"]
        ordered = sorted(scores, key=scores.get, reverse=True)
        assert page.locator("#answers td:first-child").all_inner_texts() == ordered
        assert f"Predicted {ordered[0]}." in page.locator("#state").inner_text()
        assert not page.locator("#threshold").is_visible()
        assert find_overflowing_elements(page) == [] and find_accessibility_violations(page) == []


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_picture_may_be_pasted_or_dropped(browser, squares_page, way):
    script = """([way, bytes]) => new Promise((done) => {
        addEventListener("answer", ({ detail }) => done(detail.boxes.length), { once: true });
        const data = new DataTransfer(), file = Uint8Array.from(bytes);
        data.items.add(new File([file], "scene.png", { type: "image/png" }));
        const options = { bubbles: true, cancelable: true };
        document.body.dispatchEvent(way === "paste"
            ? new ClipboardEvent("paste", { ...options, clipboardData: data })
            : new DragEvent("drop", { ...options, dataTransfer: data }));
    })"""
    with browser.page(squares_page) as page:
        assert page.evaluate(script, [way, [*encode_picture(draw_scene())]]) > 0
        assert "Found" in page.locator("#state").inner_text()


def test_huge_picture_is_answered_as_by_the_bundle(browser, squares, squares_page):
    scene = Image.fromarray(draw_scene()).resize((7072, 7072), Image.Resampling.NEAREST)  # 50 megapixels
    data = encode_picture(np.asarray(scene), compress_level=1)
    [expected] = load_bundle(squares).find_boxes([data])
    with browser.page(squares_page) as page:
        answer = ask_page(page, "huge.png", data)
        boxes = [box for box in answer["boxes"] if box["score"] >= load_bundle(squares).threshold]
        values = [[box.x, box.y, box.width, box.height] for box in expected]
        assert values and np.allclose(list_box_values(boxes), values, rtol=0, atol=1)
        size = page.evaluate("() => [document.querySelector('canvas').width, document.querySelector('canvas').height]")
        assert (answer["width"], answer["height"]) == scene.size and size == [1600, 1600]


def test_file_that_is_no_picture_is_refused_in_one_sentence(browser, squares_page):
    with browser.page(squares_page) as page:
        for data in (b"no picture", b"", encode_picture(draw_scene())[:200]):
            page.set_input_files("#file", {"name": "broken.png", "mimeType": "image/png", "buffer": data})
            page.wait_for_function("() => document.getElementById('state').textContent.startsWith('No answer')")
            assert "cannot read broken.png: it is damaged" in page.locator("#state").inner_text()
            ask_page(page, "scene.png", encode_picture(draw_scene()))
            assert "Found" in page.locator("#state").inner_text()


def test_picture_with_too_many_pixels_is_refused(browser, squares, tmp_path):
    folder = export_page(squares, tmp_path / "page")
    manifest = json.loads((folder / "model.json").read_text()) | {"max_pixels": 2000}
    (folder / "model.json").write_text(json.dumps(manifest))
    with serve_folder(folder) as url, browser.page(url) as page:
        picture = {"name": "scene.png", "mimeType": "image/png", "buffer": encode_picture(draw_scene())}
        page.set_input_files("#file", picture)
        page.wait_for_function("() => document.getElementById('state').textContent.startsWith('No answer')")
        assert "it has 48x48 pixels, more than 2000; make it smaller" in page.locator("#state").inner_text()


@pytest.mark.parametrize("name", ["model.onnx", "model.json", "onnxruntime-web"])
def test_missing_file_of_the_page_is_named(browser, squares, tmp_path, name):
    folder = export_page(squares, tmp_path / "page")
    (folder / name).rename(tmp_path / "elsewhere")
    with serve_folder(folder) as url, browser.page(url) as page:
        text = page.locator("#state").inner_text()
        assert text.startswith("No answer: cannot") and page.locator("#file").is_disabled()
        assert name == "onnxruntime-web" or name in text
    browser.errors.clear()  # the browser reports what is missing


def test_camera_is_answered_until_it_is_stopped(browser, squares_page):
    flags = ("--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with (
        browser.engine.browser_type.launch(executable_path=shutil.which("chromium"), args=flags) as engine,
        Browser(engine, browser.errors).page(squares_page, permissions=["camera"]) as page,
    ):
        script = """() => new Promise((done) => {
            const sizes = [];
            addEventListener("answer", ({ detail }) => {
                sizes.push([detail.width, detail.height]);
                if (sizes.length === 3) done(sizes);
            });
            document.getElementById("camera").click();
        })"""
        sizes = page.evaluate(script)
        assert len(sizes) == 3 and min(map(min, sizes)) >= 100
        assert page.locator("#camera").inner_text() == "Stop the camera"
        page.locator("#camera").press("Enter")
        assert page.locator("#camera").inner_text() == "Use the camera"
        answer = ask_page(page, "scene.png", encode_picture(draw_scene()))
        assert answer["width"] == 48
