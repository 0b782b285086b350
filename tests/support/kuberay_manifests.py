"""Manifests of the repository for KubeRay, to be read and changed."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MANIFEST_FOLDER = ROOT / "services" / "kuberay"
CLUSTER, JOB, SERVICE, SHARED = (
    MANIFEST_FOLDER / f"{name}.yaml" for name in ("raycluster", "rayjob", "rayservice", "shared")
)


def load_manifests(path):
    """Read all documents of a manifest."""
    return list(yaml.safe_load_all(path.read_text()))


def get_value(manifest, keys):
    """Return the value at a path of keys."""
    value = manifest
    for key in keys:
        value = value[key]
    return value
