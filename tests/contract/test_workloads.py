"""What every workload promises, and what each says when its data is not there."""

import gzip
import os
import struct
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from equipoise.config import TrainConfig
from equipoise.images.decode import load_image
from equipoise.training.loop import laps
from equipoise.workloads import WORKLOADS, load_workload
from equipoise.workloads.base import stratified_split
from equipoise.workloads.digits import read_sklearn_digits
from equipoise.workloads.image_folder import LazyImages, list_image_files


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder with small data sets in the published formats, and photographs."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 400), ("t10k", 100)):
        pictures = rng.integers(0, 256, (count, 28, 28), np.uint8)
        idx(raw / f"{part}-images-idx3-ubyte", pictures)
        idx(raw / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)
    for name, colour in (("cat", (200, 0, 0)), ("dog", (0, 0, 200))):
        photographs(root / "photos" / name, colour, 20, rng)
    return root


def idx(path, values):
    """A file in the format of MNIST, packed and not."""
    content = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()
    path.write_bytes(content)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))


def photographs(place, colour, count, rng):
    place.mkdir(parents=True)
    for i in range(count):
        width, height = rng.integers(20, 90, 2)
        Image.new("RGB", (width, height), colour).save(place / f"{i}.{('jpg', 'png', 'webp')[i % 3]}")


TRIALS = [
    TrainConfig(workload="digits"),
    TrainConfig(workload="fashion-mnist"),
    TrainConfig(workload="folder", model="lenet", image_size=32, batch_size=8),
    TrainConfig(workload="tests.support.workloads:with_dropout"),
]


@pytest.fixture(params=TRIALS, ids=lambda trial: trial.workload)
def trial(request, data):
    place = data / "photos" if request.param.workload == "folder" else data
    return TrainConfig(**{**vars(request.param), "data": str(place)})


def test_pictures_labels_and_scores_fit_together(trial):
    made = load_workload(trial)
    for split in (made.train, made.validation, made.reference, made.test):
        assert len(split) > 0
        assert split.pictures.dtype == torch.uint8
        assert split.pictures.shape[0] == len(split.labels) == len(split)
        assert split.labels.dtype == torch.int64
        assert set(split.labels.tolist()) == set(range(len(made.classes)))
    assert len(made.train) > 2 * max(len(made.validation), len(made.reference))
    assert len(made.mean) == len(made.std) == made.train.pictures.shape[1]
    images = made.train.pictures[:4].float() / 255
    scores = made.model()(images)
    assert scores.shape == (4, len(made.classes))
    assert made.loss(scores, made.train.labels[:4]).ndim == 0
    assert made.metric(scores, made.train.labels[:4]).shape == (4,)


def test_splits_are_the_same_every_time(trial):
    one, other = load_workload(trial), load_workload(trial)
    for name in ("train", "validation", "reference", "test"):
        assert torch.equal(getattr(one, name).pictures, getattr(other, name).pictures)


def test_a_workload_trains(trial):
    done = list(laps(TrainConfig(**{**vars(trial), "batch_size": 8, "max_examples": 64, "target": 2.0})))
    assert done[-1].seen == 64


def test_splits_are_disjoint_complete_and_in_proportion():
    labels = np.random.default_rng(0).integers(0, 5, 1003)
    parts = stratified_split(labels, (0.15, 0.1, 0.15))
    assert sorted(np.concatenate(parts)) == list(range(1003))
    assert not any(set(one) & set(other) for one, other in combinations(parts, 2))
    for part, share in zip(parts, (0.6, 0.15, 0.1, 0.15), strict=True):
        for label in range(5):
            assert abs((labels[part] == label).sum() - share * (labels == label).sum()) <= 1


def test_digits_are_those_that_scikit_learn_loads():
    known = load_digits()
    images, classes = read_sklearn_digits()
    assert (images == known.images).all() and (classes == known.target).all()


def test_digits_are_real():
    made = load_workload(TrainConfig(workload="digits"))
    assert [len(s) for s in (made.train, made.validation, made.reference, made.test)] == [1078, 269, 181, 269]
    assert made.train.pictures.max() == 255


@pytest.mark.parametrize(
    ("name", "file"), [("fashion-mnist", "train-images-idx3-ubyte.gz"), ("cifar10", "cifar-10-python.tar.gz")]
)
def test_without_data_and_network_the_files_are_named(tmp_path, monkeypatch, name, file):
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(ValueError, match=f"could not be downloaded.*place these files: .*{file}"):
        load_workload(TrainConfig(workload=name, data=str(tmp_path)))


def test_a_name_that_is_no_workload_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match="no workload 'digit'; choose one of: cifar10, digits, fashion-mnist, folder"):
        load_workload(TrainConfig(workload="digit"))
    with pytest.raises(ValueError, match=r"'no\.such:thing' raised ModuleNotFoundError: No module named 'no'"):
        load_workload(TrainConfig(workload="no.such:thing"))
    with pytest.raises(ValueError, match=r"module 'tests\.support\.workloads' has no 'nothing'"):
        load_workload(TrainConfig(workload="tests.support.workloads:nothing"))
    with pytest.raises(ValueError, match="is a str"):
        load_workload(TrainConfig(workload="equipoise.training.gradient_sync:__name__"))
    with pytest.raises(ValueError, match="must return an equipoise"):
        load_workload(TrainConfig(workload="builtins:repr"))


def test_a_batch_that_the_training_split_cannot_fill_is_refused():
    with pytest.raises(ValueError, match=r"2048 \(2 workers x 1024 x 1\).*holds 1078 examples"):
        load_workload(TrainConfig(workload="digits", workers=2, batch_size=1024))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "squeezenet1_1", "googlenet"])
def test_torchvision_models_take_other_channels_and_classes(name):
    made = load_workload(TrainConfig(workload="digits", model=name, image_size=64))
    assert made.model().eval()(torch.zeros(2, 1, 64, 64)).shape == (2, 10)


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="no model 'resnet19'; choose one of: lenet, alexnet"):
        load_workload(TrainConfig(workload="digits", model="resnet19"))
    with pytest.raises(ValueError, match="alexnet does not take 1x16x16 images"):
        load_workload(TrainConfig(workload="digits", model="alexnet"))
    with pytest.raises(ValueError, match="at least 12 pixels per side, got 8"):
        load_workload(TrainConfig(workload="digits", image_size=8))


def test_every_workload_by_name_is_a_function_of_a_trial():
    assert all(callable(made) for made in WORKLOADS.values())


class TestFolder:
    def trial(self, place, **changes):
        return TrainConfig(workload="folder", data=str(place), model="lenet", image_size=32, **changes)

    def test_photographs_stand_upright(self, tmp_path):
        wide = Image.new("RGB", (60, 40), (0, 0, 0))
        wide.paste((255, 255, 255), (0, 0, 30, 40))  # white on the left
        exif = Image.Exif()
        exif[0x0112] = 6  # turned: what was left comes out on top
        wide.save(tmp_path / "turned.jpg", exif=exif, quality=95)
        picture = load_image(tmp_path / "turned.jpg", (3, 32, 32))
        assert picture.shape == (3, 32, 32)
        assert picture[:, :12].min() > 200 and picture[:, 20:].max() < 50

    @pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow says what it passes over
    def test_an_orientation_that_makes_no_sense_is_passed_over(self, tmp_path):
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (8, 8)).save(tmp_path / "odd.jpg", exif=exif)
        held = (tmp_path / "odd.jpg").read_bytes()
        for place in range(held.index(b"Exif") + 6, held.index(b"Exif") + len(exif.tobytes())):
            (tmp_path / "odd.jpg").write_bytes(held[:place] + b"\xff" + held[place + 1 :])
            assert load_image(tmp_path / "odd.jpg", (3, 8, 8)).shape == (3, 8, 8)

    def test_sixteen_bits_keep_their_greys(self, tmp_path):
        ramp = np.linspace(0, 0xFFFF, 32 * 32).reshape(32, 32).astype(np.uint16)
        Image.fromarray(ramp).save(tmp_path / "deep.png")
        picture = load_image(tmp_path / "deep.png", (3, 32, 32))
        assert torch.equal(picture[0], torch.from_numpy((ramp >> 8).astype(np.uint8)))

    def test_a_picture_without_a_known_white_is_left_out(self, tmp_path):
        Image.fromarray(np.full((32, 32), 0.7, np.float32)).save(tmp_path / "float.tif")
        with pytest.raises(ValueError, match="no known white"):
            load_image(tmp_path / "float.tif", (3, 32, 32))

    def test_what_is_no_regular_file_or_hidden_is_passed_over(self, data):
        os.mkfifo(data / "photos" / "cat" / "pipe.png")
        (data / "photos" / "cat" / ".thumbs").mkdir()
        photographs(data / "photos" / "cat" / ".thumbs" / "a", (1, 2, 3), 2, np.random.default_rng(0))
        assert len(list_image_files(data / "photos" / "cat")) == 20

    def test_corrupt_pictures_are_left_out_named_and_counted(self, tmp_path, capsys):
        rng = np.random.default_rng(0)
        for name in ("a", "b"):
            photographs(tmp_path / name, (10, 20, 30), 12, rng)
        whole = (tmp_path / "a" / "0.jpg").read_bytes()
        (tmp_path / "a" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
        (tmp_path / "b" / "empty.png").touch()
        made = load_workload(self.trial(tmp_path, batch_size=4))
        assert sum(len(s) for s in (made.train, made.validation, made.reference, made.test)) == 24
        said = capsys.readouterr().err
        assert "left out 2 of 26" in said and "cut.jpg" in said and "empty.png" in said

    @pytest.mark.parametrize(("classes", "found"), [([], "no folder"), (["cat"], r"only one folder \(cat\)")])
    def test_fewer_than_two_classes_are_refused(self, tmp_path, classes, found):
        for name in classes:
            photographs(tmp_path / name, (1, 2, 3), 10, np.random.default_rng(0))
        with pytest.raises(ValueError, match=found):
            load_workload(self.trial(tmp_path))

    def test_a_class_too_small_to_be_dealt_is_named(self, tmp_path):
        photographs(tmp_path / "cat", (1, 2, 3), 10, np.random.default_rng(0))
        (tmp_path / "dog").mkdir()
        with pytest.raises(ValueError, match=r"fewer than 8 readable images: dog \(0\)"):
            load_workload(self.trial(tmp_path))

    def test_no_folder_at_all(self, tmp_path):
        with pytest.raises(ValueError, match="is not a folder"):
            load_workload(self.trial(tmp_path / "none"))

    def test_a_large_folder_streams_the_same_pictures(self, data, monkeypatch):
        trial = self.trial(data / "photos", batch_size=4, max_examples=96, target=2.0, threads=2)
        in_memory = list(laps(trial))
        monkeypatch.setattr(sys.modules["equipoise.workloads.image_folder"], "MAX_IN_MEMORY_BYTES", 0)
        assert not isinstance(load_workload(trial).train.pictures, torch.Tensor)
        streamed = list(laps(trial))
        assert [lap.loss for lap in streamed] == [lap.loss for lap in in_memory]

    def test_a_picture_found_damaged_while_streaming_is_stood_in_for(self, tmp_path, capsys):
        photographs(tmp_path / "cat", (9, 9, 9), 3, np.random.default_rng(0))
        paths = sorted((tmp_path / "cat").iterdir())
        paths[1].write_bytes(b"gone")
        pictures = LazyImages(paths, 16)
        assert torch.equal(pictures[1], pictures[2])
        assert paths[1].name in capsys.readouterr().err
