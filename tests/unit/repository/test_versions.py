"""Versions that are written in several files agree: of the project, of Ray, of Python, and of the lock file."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCKERFILE = (ROOT / "services" / "kuberay" / "Dockerfile").read_text(encoding="utf-8")
MANIFESTS = [ROOT / "services" / "kuberay" / f"{name}.yaml" for name in ("raycluster", "rayjob", "rayservice")]
CLUSTER_FILES = [ROOT / "cluster.yaml", ROOT / "cluster.gcp.yaml"]
BASE_IMAGE = re.compile(r"rayproject/ray:(?P<ray>[\d.]+)-py(?P<python>\d+)-cpu")
PROJECT_IMAGE = re.compile(r"REGISTRY/equipoise:(?P<project>[\d.]+)-ray(?P<ray>[\d.]+)")


def read_lock():
    """Return the pinned version of each package by its normalized name."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(pins), "a line is not NAME==VERSION"
    return {canonicalize_name(pin[1]): Version(pin[2]) for pin in pins}


def list_requirements():
    """Return the requirements of the project and of all its extras."""
    texts = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    return [Requirement(text) for text in texts]


def test_lock_has_each_package_once_and_in_order():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines, key=str.lower)
    assert len(read_lock()) == len(lines)


@pytest.mark.parametrize("requirement", list_requirements(), ids=lambda requirement: requirement.name)
def test_lock_pins_every_requirement_within_its_bounds(requirement):
    assert requirement.specifier.contains(read_lock()[canonicalize_name(requirement.name)])


def test_ray_is_bound_to_one_minor_version():
    [ray] = [requirement for requirement in list_requirements() if requirement.name == "ray"]
    pinned = read_lock()["ray"]
    assert ray.specifier.contains(f"{pinned.major}.{pinned.minor}.99")
    assert not ray.specifier.contains(f"{pinned.major}.{pinned.minor + 1}.0")
    assert not ray.specifier.contains(f"{pinned.major}.{pinned.minor - 1}.99")


@pytest.mark.parametrize("path", [ROOT / "services/kuberay/Dockerfile", *CLUSTER_FILES], ids=lambda path: path.name)
def test_base_image_has_the_locked_ray_and_an_allowed_python(path):
    images = [*BASE_IMAGE.finditer(path.read_text(encoding="utf-8"))]
    assert images
    for image in images:
        assert Version(image["ray"]) == read_lock()["ray"]
        python = f"{image['python'][0]}.{image['python'][1:]}"
        assert SpecifierSet(PROJECT["requires-python"]).contains(python)
        assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


@pytest.mark.parametrize("path", [ROOT / "services/kuberay/Dockerfile", *MANIFESTS], ids=lambda path: path.name)
def test_tag_of_our_image_names_both_versions(path):
    version = Version(PROJECT["version"])
    tags = [*PROJECT_IMAGE.finditer(path.read_text(encoding="utf-8"))]
    assert tags
    for tag in tags:
        assert tag["project"] == f"{version.major}.{version.minor}"
        assert Version(tag["ray"]) == read_lock()["ray"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_name_the_locked_ray(path):
    versions = re.findall(r"rayVersion: ([\d.]+)", path.read_text(encoding="utf-8"))
    assert [Version(version) for version in versions] == [read_lock()["ray"]]


def test_image_is_installed_by_the_lock_file():
    [command] = re.findall(r"^RUN pip install (.*)$", DOCKERFILE, re.MULTILINE)
    assert "--constraint requirements.lock" in command
    [extra] = re.findall(r"\.\[(\w+)\]", command)
    assert extra in PROJECT["optional-dependencies"]


def test_citation_has_the_version_and_licence_of_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]
    assert ("date-released" in citation) == (f"## {PROJECT['version']} " in read_changelog())


def read_changelog():
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_changelog_has_a_section_for_what_is_not_released():
    sections = re.findall(r"^## (.*)$", read_changelog(), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", section) for section in sections[1:])
    kinds = set(re.findall(r"^### (.*)$", read_changelog(), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
