"""Storage of Ray Train: a folder, or a URL through the same client and retries as all other access to a store."""

import io
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pyarrow import PythonFile
from pyarrow.fs import FSSpecHandler, PyFileSystem

from equipoise.storage.object_store import RemotePath
from equipoise.storage.retry import retry_while_unavailable

ResultT = TypeVar("ResultT")


def build_ray_storage_config(location: Path) -> dict[str, Any]:
    """Return the storage options of `ray.train.RunConfig` for a folder or URL."""
    if not isinstance(location, RemotePath):
        return {"storage_path": str(location)}
    return {"storage_path": location.key, "storage_filesystem": PyFileSystem(RetryingFileSystem(str(location)))}


class RetryingFileSystem(FSSpecHandler):
    """Arrow file system for Ray over an object store, pickled as its URL: every process finds its own credentials."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.scheme = url.partition("://")[0]
        super().__init__(RemotePath(url).filesystem)

    def __reduce__(self) -> Any:
        return RetryingFileSystem, (self.url,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RetryingFileSystem) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Do nothing: an object store has no folders, and fsspec would create a missing bucket."""

    def get_file_info(self, paths: list[str]) -> Any:
        return self._retry(lambda: super(RetryingFileSystem, self).get_file_info(paths))

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._retry(lambda: super(RetryingFileSystem, self).get_file_info_selector(selector))

    def delete_dir(self, path: str) -> None:
        with suppress(FileNotFoundError):  # deleted by an earlier attempt whose answer was lost
            self._retry(lambda: super(RetryingFileSystem, self).delete_dir(path))

    def open_input_stream(self, path: str) -> PythonFile:
        """Download the whole file first, because a stream that breaks off cannot be retried."""
        descriptor, copy = tempfile.mkstemp(prefix="equipoise-")
        os.close(descriptor)
        try:
            RemotePath(f"{self.scheme}://{path}").download_to(Path(copy))
            return PythonFile(Path(copy).open("rb"), mode="r")  # Arrow closes it
        finally:
            Path(copy).unlink()

    open_input_file = open_input_stream

    def open_output_stream(self, path: str, metadata: Any) -> PythonFile:
        return PythonFile(UploadOnClose(RemotePath(f"{self.scheme}://{path}")), mode="w")

    def _retry(self, action: Callable[[], ResultT]) -> ResultT:
        return retry_while_unavailable(action, self.url)


class UploadOnClose(io.FileIO):
    """Local temporary file that is uploaded in one request when it is closed."""

    def __init__(self, target: RemotePath) -> None:
        descriptor, copy = tempfile.mkstemp(prefix="equipoise-")
        self.target, self.local_copy = target, Path(copy)
        super().__init__(descriptor, "w")

    def close(self) -> None:
        """Upload the file and delete the local copy."""
        if self.closed:
            return
        super().close()
        try:
            self.target.upload_from(self.local_copy)
        finally:
            self.local_copy.unlink()
