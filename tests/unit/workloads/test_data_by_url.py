"""Workloads whose data lie behind a URL."""

import gzip
import hashlib
import shutil

import pytest
import torch
from torchvision.datasets import FashionMNIST

from equipoise.config import TrainConfig
from equipoise.storage.node_cache import fetch_data
from equipoise.storage.retry import RETRY_SECONDS_VARIABLE, StoreUnavailable
from equipoise.training.finetune import find_weights_folder
from equipoise.workloads import load_workload
from equipoise.workloads.download import unpack_files
from tests.support.errors import raises_code
from tests.support.photographs import save_photographs
from tests.unit.workloads.test_published_workloads import check_splits, write_fashion_mnist

SPLITS = ("train", "validation", "reference", "test")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build_folder_config(data):
    return TrainConfig(workload="folder", model="lenet", image_size=32, data=str(data), batch_size=2)


def test_photographs_behind_a_url_are_those_of_the_folder(tmp_path, bucket):
    photos = tmp_path / "my photos"
    save_photographs(photos, 8)
    for path in photos.rglob("*.jpg"):
        (bucket / "my photos" / str(path.relative_to(photos))).write_bytes(path.read_bytes())
    local = load_workload(build_folder_config(photos))
    for url in (f"file://{photos}", "memory://bucket/my photos"):
        remote = load_workload(build_folder_config(url))
        assert (remote.name, remote.classes) == (local.name, local.classes) == ("my-photos", ["flower", "lawn", "roof"])
        for part in SPLITS:
            assert torch.equal(getattr(remote, part).inputs[:], getattr(local, part).inputs[:])
            assert torch.equal(getattr(remote, part).targets, getattr(local, part).targets)


def test_errors_name_the_url_and_not_the_copy(tmp_path, cache):
    save_photographs(tmp_path / "photos", 7)
    url = f"file://{tmp_path}/photos"
    with raises_code("dataset-invalid", f"--data {url} has classes with fewer than 8") as raised:
        load_workload(build_folder_config(url))
    assert str(cache) not in str(raised.value)
    with raises_code("dataset-invalid", f"--data {url}/roof holds no folder"):
        load_workload(build_folder_config(f"{url}/roof"))


def test_fashion_mnist_behind_a_url_is_loaded_from_a_copy(tmp_path):
    write_fashion_mnist(tmp_path / "sets")
    config = TrainConfig(workload="fashion-mnist", data=f"file://{tmp_path}/sets")
    check_splits(load_workload(config), 1, 28)
    shutil.rmtree(tmp_path / "sets" / "FashionMNIST")
    (tmp_path / "sets" / "notes.txt").write_text("x")
    with raises_code("dataset-unavailable", f"file://{tmp_path}/sets/FashionMNIST/raw/train-images-idx3-ubyte.gz"):
        load_workload(config)


def build_small_dataset(root, has_right_digests):
    """Pack small files of Fashion-MNIST; return torchvision's class for them, and their names."""
    write_fashion_mnist(root)
    packed = []
    for path in (root / "FashionMNIST" / "raw").iterdir():
        packed.append(path.with_name(f"{path.name}.gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    digests = [hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in packed]
    resources = [
        (path.name, digest if has_right_digests else "0" * 32) for path, digest in zip(packed, digests, strict=True)
    ]
    dataset = type("FashionMNIST", (FashionMNIST,), {"resources": resources, "mirrors": ["file:///nowhere/"]})
    return dataset, [str(path.relative_to(root)) for path in packed]


def test_published_files_are_unpacked_in_the_copy_before_it_appears(tmp_path):
    dataset, files = build_small_dataset(tmp_path / "sets", has_right_digests=True)
    copy = fetch_data(f"file://{tmp_path}/sets", prepare=lambda folder: unpack_files(dataset, folder, files))
    assert len(dataset(copy, train=True)) == len(dataset(copy, train=False)) == 1000
    assert len(list((tmp_path / "sets").rglob("*ubyte*"))) == 4  # nothing is written where the data lie


def test_damaged_published_files_are_refused_and_incomplete_ones_are_left_alone(tmp_path):
    dataset, files = build_small_dataset(tmp_path, has_right_digests=False)
    with raises_code("dataset-unavailable", files[0]):
        unpack_files(dataset, tmp_path, files)
    unpack_files(dataset, tmp_path, [*files, "missing.gz"])
    assert len(list(tmp_path.rglob("*ubyte*"))) == 4


def test_store_that_does_not_answer_is_no_mistake_of_the_workload(monkeypatch):
    variables = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", RETRY_SECONDS_VARIABLE: "0"}
    variables |= {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreUnavailable, match="s3://bucket/photos"):
        load_workload(build_folder_config("s3://bucket/photos"))


def test_weights_of_torchvision_are_kept_apart_from_data_behind_a_url(tmp_path, cache):
    assert find_weights_folder(str(tmp_path / "data")) == tmp_path / "data" / "weights"
    assert find_weights_folder("s3://bucket/photos") == cache / "weights"
