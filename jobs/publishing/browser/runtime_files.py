"""Files of onnxruntime-web, which runs a model in a browser: taken from a folder, or from npm by its own client.

They are one version, whose digests are known here, so that a page never runs a script that was changed on its way.
"""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from equipoise.bundle.folder import file_sha256
from equipoise.errors import EquipoiseError

RUNTIME_PACKAGE: Final = "onnxruntime-web"
RUNTIME_VERSION: Final = "1.30.0"
RUNTIME_SHA256: Final = {  # the build without GPU, which needs no headers of the server and takes every operator
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
NPM_SECONDS: Final = 300  # for a package of 33 MB
RUNTIME_REMEDY: Final = (
    f"run `npm install {RUNTIME_PACKAGE}@{RUNTIME_VERSION}` where npm and its registry can be reached, and give "
    f"--runtime node_modules/{RUNTIME_PACKAGE}"
)


@contextmanager
def open_runtime(folder: Path | None) -> Iterator[Path]:
    """Yield a folder with the files of onnxruntime-web: that of an installed package, or a copy that npm fetches."""
    if folder is not None:
        yield require_runtime(find_runtime_files(folder))
        return
    with tempfile.TemporaryDirectory(prefix="equipoise-") as scratch:
        yield require_runtime(fetch_runtime(Path(scratch)))


def find_runtime_files(folder: Path) -> Path:
    """Return where an installed package has its files: in dist/, or in the folder itself."""
    return folder / "dist" if (folder / "dist").is_dir() else folder


def fetch_runtime(scratch: Path) -> Path:
    """Fetch the package with npm, which keeps it for the next time, and return a folder with the files of a page."""
    npm = shutil.which("npm")
    if npm is None:
        raise EquipoiseError(
            "runtime-unavailable", f"cannot fetch {RUNTIME_PACKAGE}: npm is not on this machine", RUNTIME_REMEDY
        )
    command = [npm, "pack", "--prefer-offline", "--loglevel=error", f"{RUNTIME_PACKAGE}@{RUNTIME_VERSION}"]
    try:
        subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True, timeout=NPM_SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise report_npm_failure(f"it did not come within {NPM_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        raise report_npm_failure(find_npm_reason(error.stderr)) from None
    [package] = scratch.glob("*.tgz")
    with tarfile.open(package) as archive:
        for name in RUNTIME_SHA256:
            extract_runtime_file(archive, name, scratch)
    return scratch


def extract_runtime_file(archive: tarfile.TarFile, name: str, folder: Path) -> None:
    """Write one file of the package; one that is missing is refused with the others."""
    try:
        source = archive.extractfile(f"package/dist/{name}")
    except KeyError:
        return
    if source is not None:
        with source, (folder / name).open("wb") as target:
            shutil.copyfileobj(source, target)


def find_npm_reason(output: str) -> str:
    """Return the line of npm's errors that says most: its code, such as ENOTFOUND, or else the first."""
    lines = [line.removeprefix("npm error").strip() for line in output.splitlines()]
    codes = [line.removeprefix("code ") for line in lines if line.startswith("code ")]
    return f"npm ended with {codes[0]}" if codes else next(filter(None, lines), "npm failed")


def report_npm_failure(reason: str) -> EquipoiseError:
    """Return the error for a package that npm cannot fetch."""
    return EquipoiseError("runtime-unavailable", f"cannot fetch {RUNTIME_PACKAGE}: {reason}", RUNTIME_REMEDY)


def require_runtime(folder: Path) -> Path:
    """Return a folder that holds the files of the version that pages are tested with; refuse any other."""
    for name, sha256 in RUNTIME_SHA256.items():
        if not (folder / name).is_file():
            raise EquipoiseError(
                "runtime-unavailable", f"cannot use the runtime in {folder}: it has no {name}", RUNTIME_REMEDY
            )
        if file_sha256(folder / name) != sha256:
            raise EquipoiseError(
                "runtime-unavailable",
                f"cannot use the runtime in {folder}: {name} is not that of {RUNTIME_PACKAGE} {RUNTIME_VERSION}",
                RUNTIME_REMEDY,
            )
    return folder
