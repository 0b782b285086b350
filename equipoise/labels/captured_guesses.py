"""First guesses for the captures of a service: what its model answered, as the file beside the image says."""

from dataclasses import asdict
from pathlib import Path

from equipoise.captures.capture import IMAGE_FILE_PATTERN, CaptureMetadata, parse_metadata
from equipoise.captures.file_listing import sort_capture_files
from equipoise.labels.guesses import Guess, parse_guess


class CapturedGuesser:
    """Answers that a service gave to the requests that it kept; no model has to run."""

    def __call__(self, path: Path) -> Guess | None:
        """Return what the service answered to the image in a file; None if it is no capture."""
        metadata = read_metadata_beside(path)
        if metadata is None:
            return None
        if metadata.boxes is not None:
            return parse_guess({"boxes": [asdict(box) for box in metadata.boxes]}, f"the boxes of {path}")
        return Guess(label=metadata.label, scores=(min(max(metadata.score, 0.0), 1.0),))

    def list_classes(self, folder: Path) -> list[str]:
        """Return the classes of the models that answered the captures in a folder, in the order of their outputs."""
        names = sort_capture_files(path.name for path in folder.glob("*.*")).complete
        found = [read_metadata_beside(folder / f"{name.stem}.png") for name in names]
        return list(dict.fromkeys(name for metadata in found if metadata for name in metadata.scores))


def read_metadata_beside(path: Path) -> CaptureMetadata | None:
    """Read the metadata of the capture whose image lies at a path; None if it is no capture, or damaged."""
    if not IMAGE_FILE_PATTERN.fullmatch(path.name):
        return None
    names = sort_capture_files([path.name, path.with_suffix(".json").name]).complete
    try:
        return parse_metadata(names[0], path.with_suffix(".json").read_bytes()) if names else None
    except OSError:
        return None
