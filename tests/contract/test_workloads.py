"""Contract of every workload, and the message of each when its data is missing."""

import gzip
import os
import shutil
import struct
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from equipoise.boxes.formats.voc import write_voc
from equipoise.config import TrainConfig
from equipoise.images.decode import load_image
from equipoise.images.orientation import list_image_files
from equipoise.training.loop import laps
from equipoise.workloads import WORKLOADS, load_workload
from equipoise.workloads.base import stratified_split
from equipoise.workloads.digits import read_sklearn_digits
from equipoise.workloads.image_folder import LazyImages
from tests.support.boxed_shelves import save_shelf_pictures
from tests.support.errors import raises_code
from tests.support.photographs import write_plain_photographs


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Data folder with small data sets in the published formats, and photographs."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    raw_folder = root / "FashionMNIST" / "raw"
    raw_folder.mkdir(parents=True)
    for part, count in (("train", 400), ("t10k", 100)):
        images = rng.integers(0, 256, (count, 28, 28), np.uint8)
        write_idx_file(raw_folder / f"{part}-images-idx3-ubyte", images)
        write_idx_file(raw_folder / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)
    for name, color in (("cat", (200, 0, 0)), ("dog", (0, 0, 200))):
        write_plain_photographs(root / "photos" / name, color, 20, rng)
    (root / "shelves").mkdir()
    write_voc(save_shelf_pictures(root / "shelves", 40), root / "shelves")
    return root


def write_idx_file(path, values):
    """Write values in the IDX format of MNIST, plain and as .gz."""
    content = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()
    path.write_bytes(content)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))


IMAGE_CONFIGS = [
    TrainConfig(workload="digits"),
    TrainConfig(workload="fashion-mnist"),
    TrainConfig(workload="folder", model="lenet", image_size=32, batch_size=8),
    TrainConfig(workload="tests.support.workloads:with_dropout"),
]


EMBEDDED_CONFIGS = [TrainConfig(workload="text"), TrainConfig(workload="shelf", image_size=48)]
BOX_CONFIGS = [TrainConfig(workload="boxes", image_size=64, batch_size=8)]
FOLDERS = {"folder": "photos", "boxes": "shelves"}


def place_data(config, data_folder):
    folder = data_folder / FOLDERS.get(config.workload, "")
    return config if config in EMBEDDED_CONFIGS else replace(config, data=str(folder))


@pytest.fixture(params=IMAGE_CONFIGS, ids=lambda config: config.workload)
def image_config(request, data_folder):
    return place_data(request.param, data_folder)


@pytest.fixture(params=IMAGE_CONFIGS + EMBEDDED_CONFIGS + BOX_CONFIGS, ids=lambda config: config.workload)
def config(request, data_folder):
    return place_data(request.param, data_folder)


def test_inputs_outputs_and_targets_fit_together(config):
    workload = load_workload(config)
    transform = workload.input_transform(torch.device("cpu"), torch.float32)
    model = workload.model().eval()
    for split in (workload.train, workload.validation, workload.reference, workload.test):
        inputs, targets = split.read_examples([0, len(split) - 1])
        outputs = model(transform(inputs))
        rows = workload.metric(outputs, targets)
        assert len(rows) == 2 and rows.isfinite().all()
        assert rows.ndim == 1 if workload.score is None else np.isfinite(workload.score(rows))
        assert workload.loss(outputs, targets).ndim == 0
    assert workload.unit.per_example >= 1


def test_images_labels_and_scores_fit_together(image_config):
    workload = load_workload(image_config)
    for split in (workload.train, workload.validation, workload.reference, workload.test):
        assert len(split) > 0
        assert split.inputs.dtype == torch.uint8
        assert split.inputs.shape[0] == len(split.targets) == len(split)
        assert split.targets.dtype == torch.int64
        assert set(split.targets.tolist()) == set(range(len(workload.classes)))
    assert len(workload.train) > 2 * max(len(workload.validation), len(workload.reference))
    assert len(workload.mean) == len(workload.std) == workload.train.inputs.shape[1]
    images = workload.train.inputs[:4].float() / 255
    scores = workload.model()(images)
    assert scores.shape == (4, len(workload.classes))
    assert workload.loss(scores, workload.train.targets[:4]).ndim == 0
    assert workload.metric(scores, workload.train.targets[:4]).shape == (4,)


def test_splits_are_equal_on_every_load(config):
    first, second = load_workload(config), load_workload(config)
    for name in ("train", "validation", "reference", "test"):
        assert torch.equal(getattr(first, name).inputs, getattr(second, name).inputs)


def test_every_workload_trains(config):
    finished_laps = list(laps(TrainConfig(**{**vars(config), "batch_size": 8, "max_examples": 64, "target": 2.0})))
    assert finished_laps[-1].seen == 64


def test_stratified_splits_are_disjoint_complete_and_in_proportion():
    labels = np.random.default_rng(0).integers(0, 5, 1003)
    parts = stratified_split(labels, (0.15, 0.1, 0.15))
    assert sorted(np.concatenate(parts)) == list(range(1003))
    assert not any(set(first) & set(second) for first, second in combinations(parts, 2))
    for part, fraction in zip(parts, (0.6, 0.15, 0.1, 0.15), strict=True):
        for label in range(5):
            assert abs((labels[part] == label).sum() - fraction * (labels == label).sum()) <= 1


def test_digits_equal_those_of_scikit_learn():
    expected = load_digits()
    images, labels = read_sklearn_digits()
    assert (images == expected.images).all() and (labels == expected.target).all()


def test_digits_splits_have_the_expected_sizes_and_pixel_range():
    workload = load_workload(TrainConfig(workload="digits"))
    splits = workload.train, workload.validation, workload.reference, workload.test
    assert [len(split) for split in splits] == [1078, 269, 181, 269]
    assert workload.train.inputs.max() == 255


@pytest.mark.parametrize(
    ("name", "file"), [("fashion-mnist", "train-images-idx3-ubyte.gz"), ("cifar10", "cifar-10-python.tar.gz")]
)
def test_missing_files_are_named_without_data_and_network(tmp_path, monkeypatch, name, file):
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nothing listens there
    with raises_code("dataset-unavailable", file):
        load_workload(TrainConfig(workload=name, data=str(tmp_path)))


def test_unknown_workload_is_refused_with_the_choices_or_the_reason():
    with raises_code("workload-unknown", "'digit'", "cifar10, digits, fashion-mnist"):
        load_workload(TrainConfig(workload="digit"))
    with raises_code("workload-unknown") as raised:
        load_workload(TrainConfig(workload="no.such:thing"))
    assert str(raised.value) == "cannot import no.such; start the command in the folder that holds no/such.py"
    with raises_code("workload-unknown", "'tests.support.workloads' has no 'nothing'"):
        load_workload(TrainConfig(workload="tests.support.workloads:nothing"))
    with raises_code("workload-invalid"):
        load_workload(TrainConfig(workload="equipoise.training.gradient_sync:__name__"))
    with raises_code("workload-invalid"):
        load_workload(TrainConfig(workload="builtins:repr"))


def test_global_batch_larger_than_the_training_split_is_refused():
    with raises_code("workload-invalid", "2048 (2 workers x 1024 x 1)", 1078):
        load_workload(TrainConfig(workload="digits", workers=2, batch_size=1024))


def test_every_named_workload_is_callable():
    assert all(callable(function) for function in WORKLOADS.values())


class TestImageFolder:
    def build_config(self, folder, **changes):
        return TrainConfig(workload="folder", data=str(folder), model="lenet", image_size=32, **changes)

    def test_exif_orientation_is_applied(self, tmp_path):
        wide = Image.new("RGB", (60, 40), (0, 0, 0))
        wide.paste((255, 255, 255), (0, 0, 30, 40))  # white on the left
        exif = Image.Exif()
        exif[0x0112] = 6  # rotated: the left half of the file is the top of the image
        wide.save(tmp_path / "turned.jpg", exif=exif, quality=95)
        image = load_image(tmp_path / "turned.jpg", (3, 32, 32))
        assert image.shape == (3, 32, 32)
        assert image[:, :12].min() > 200 and image[:, 20:].max() < 50

    @pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns of the Exif data it ignores
    def test_invalid_exif_orientation_is_ignored(self, tmp_path):
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (8, 8)).save(tmp_path / "odd.jpg", exif=exif)
        content = (tmp_path / "odd.jpg").read_bytes()
        for position in range(content.index(b"Exif") + 6, content.index(b"Exif") + len(exif.tobytes())):
            (tmp_path / "odd.jpg").write_bytes(content[:position] + b"\xff" + content[position + 1 :])
            assert load_image(tmp_path / "odd.jpg", (3, 8, 8)).shape == (3, 8, 8)

    def test_16_bit_images_keep_their_gray_levels(self, tmp_path):
        ramp = np.linspace(0, 0xFFFF, 32 * 32).reshape(32, 32).astype(np.uint16)
        Image.fromarray(ramp).save(tmp_path / "deep.png")
        image = load_image(tmp_path / "deep.png", (3, 32, 32))
        assert torch.equal(image[0], torch.from_numpy((ramp >> 8).astype(np.uint8)))

    def test_image_without_a_known_white_is_refused(self, tmp_path):
        Image.fromarray(np.full((32, 32), 0.7, np.float32)).save(tmp_path / "float.tif")
        with raises_code("image-undecodable"):
            load_image(tmp_path / "float.tif", (3, 32, 32))

    def test_hidden_and_special_files_are_ignored(self, data_folder):
        os.mkfifo(data_folder / "photos" / "cat" / "pipe.png")
        (data_folder / "photos" / "cat" / ".thumbs").mkdir()
        write_plain_photographs(
            data_folder / "photos" / "cat" / ".thumbs" / "a", (1, 2, 3), 2, np.random.default_rng(0)
        )
        assert len(list_image_files(data_folder / "photos" / "cat")) == 20

    def test_corrupt_images_are_left_out_named_and_counted(self, tmp_path, caplog):
        rng = np.random.default_rng(0)
        for name in ("a", "b"):
            write_plain_photographs(tmp_path / name, (10, 20, 30), 12, rng)
        content = (tmp_path / "a" / "0.jpg").read_bytes()
        (tmp_path / "a" / "cut.jpg").write_bytes(content[: len(content) // 2])
        (tmp_path / "b" / "empty.png").touch()
        workload = load_workload(self.build_config(tmp_path, batch_size=4))
        splits = workload.train, workload.validation, workload.reference, workload.test
        assert sum(len(split) for split in splits) == 24
        assert "left out 2 of 26" in caplog.text and "cut.jpg" in caplog.text and "empty.png" in caplog.text

    @pytest.mark.parametrize(("classes", "message"), [([], "no folder"), (["cat"], "only one folder (cat)")])
    def test_fewer_than_two_classes_are_refused(self, tmp_path, classes, message):
        for name in classes:
            write_plain_photographs(tmp_path / name, (1, 2, 3), 10, np.random.default_rng(0))
        with raises_code("dataset-invalid", message):
            load_workload(self.build_config(tmp_path))

    @pytest.mark.parametrize(
        ("folder", "name"),
        [("photos", "photos"), ("my photos (2026)", "my-photos-2026"), ("-.x", "x"), ("日", "folder")],
    )
    def test_workload_is_named_after_its_folder(self, tmp_path, folder, name):
        for label in ("cat", "dog"):
            write_plain_photographs(tmp_path / folder / label, (1, 2, 3), 12, np.random.default_rng(0))
        assert load_workload(self.build_config(tmp_path / folder, batch_size=4)).name == name

    def test_class_with_too_few_images_is_named(self, tmp_path):
        write_plain_photographs(tmp_path / "cat", (1, 2, 3), 10, np.random.default_rng(0))
        (tmp_path / "dog").mkdir()
        with raises_code("dataset-invalid", "dog (0)"):
            load_workload(self.build_config(tmp_path))

    def test_missing_folder_is_refused(self, tmp_path):
        with raises_code("path-kind", "none"):
            load_workload(self.build_config(tmp_path / "none"))

    def test_large_folder_streams_the_same_images(self, data_folder, monkeypatch):
        config = self.build_config(data_folder / "photos", batch_size=4, max_examples=96, target=2.0, threads=2)
        in_memory = list(laps(config))
        monkeypatch.setattr(sys.modules["equipoise.workloads.image_folder"], "MAX_IN_MEMORY_BYTES", 0)
        assert not isinstance(load_workload(config).train.inputs, torch.Tensor)
        streamed = list(laps(config))
        assert [lap.loss for lap in streamed] == [lap.loss for lap in in_memory]

    def test_image_damaged_during_streaming_is_replaced_by_another(self, tmp_path, caplog):
        write_plain_photographs(tmp_path / "cat", (9, 9, 9), 3, np.random.default_rng(0))
        paths = sorted((tmp_path / "cat").iterdir())
        paths[1].write_bytes(b"gone")
        images = LazyImages(paths, 16)
        assert torch.equal(images[1], images[2])
        assert paths[1].name in caplog.text


def test_torchvision_weights_beside_the_images_are_no_class(data_folder):
    photos = data_folder / "photos"
    (photos / "weights").mkdir()
    (photos / "weights" / "resnet18.pth").touch()
    try:
        config = TrainConfig(workload="folder", model="lenet", image_size=32, batch_size=8, data=str(photos))
        assert load_workload(config).classes == ["cat", "dog"]
    finally:
        shutil.rmtree(photos / "weights")
