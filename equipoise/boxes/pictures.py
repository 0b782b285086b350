"""Pictures of a folder with their sizes, and the check of a box against its picture."""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from equipoise.boxes.box import LabelledBox
from equipoise.boxes.problems import Problem, ProblemKind
from equipoise.images.orientation import list_image_files, read_upright_size
from equipoise.images.png import PILLOW_ERRORS

MAX_OVERHANG_PIXELS = 0.5  # that rounding in a file of labels may make a box stick out; it is cut


@dataclass
class PictureFolder:
    """Pictures below a folder with their upright sizes, and the problems seen while labels are read."""

    root: Path
    sizes: dict[str, tuple[int, int]]
    """width and height by file name relative to the folder"""
    broken: set[str]
    """file names of pictures that cannot be read"""
    problems: list[Problem] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)
    """file names of pictures whose labels do not fit them"""

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """Return the pictures by their name without folders."""
        return group_names([*self.sizes, *self.broken], lambda path: path.name)

    @cached_property
    def by_stem(self) -> dict[str, list[str]]:
        """Return the pictures by their path without suffix."""
        return group_names([*self.sizes, *self.broken], lambda path: str(path.with_suffix("")))

    def report(self, kind: ProblemKind, place: str) -> None:
        """Note what is left out."""
        self.problems.append(Problem(kind, place))

    def find_picture(self, name: str, bases: Iterable[PurePosixPath]) -> str | None:
        """Return the picture that a file of labels names, searched in several folders, then anywhere by its name."""
        parts = PurePosixPath(name.replace("\\", "/"))
        for base in bases:
            if (path := str(base / parts)) in self.sizes or path in self.broken:
                return path
        same_name = self.by_name.get(parts.name, ())
        return same_name[0] if len(same_name) == 1 else None

    def find_by_stem(self, labels: PurePosixPath) -> str | None:
        """Return the picture whose path is that of a file of labels, but for the suffix."""
        same_stem = self.by_stem.get(str(labels.with_suffix("")), ())
        return same_stem[0] if len(same_stem) == 1 else None

    def report_other_size(self, name: str, place: str) -> None:
        """Leave out a picture whose labels are for another size, such as before it was turned upright."""
        self.left_out.add(name)
        self.report(ProblemKind.SIZE_DIFFERS, f"{place}: {name}")

    def keep_box(self, box: LabelledBox, picture: str, place: str) -> LabelledBox | None:
        """Return a box that fits its picture, cut at the border by at most half a pixel; report one that does not."""
        width, height = self.sizes[picture]
        if kind := find_box_problem(box, width, height):
            self.report(kind, place)
            return None
        return cut_overhang(box, width, height)

    def report_unlabelled(self, labelled: Iterable[str]) -> None:
        """Report the pictures that cannot be read, and those that no file of labels names."""
        for name in sorted(self.broken):
            self.report(ProblemKind.FILE_BROKEN, name)
        for name in sorted(self.sizes.keys() - set(labelled) - self.left_out):
            self.report(ProblemKind.PICTURE_WITHOUT_LABELS, name)


def group_names(names: Iterable[str], key: Callable[[PurePosixPath], str]) -> dict[str, list[str]]:
    """Return file names in groups by a part of their path."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(key(PurePosixPath(name)), []).append(name)
    return groups


def scan_pictures(root: Path) -> PictureFolder:
    """Read the sizes of all pictures below a folder."""
    paths = list_image_files(root)
    with ThreadPoolExecutor() as pool:
        sizes = list(pool.map(try_read_size, paths))
    named = [(path.relative_to(root).as_posix(), size) for path, size in zip(paths, sizes, strict=True)]
    return PictureFolder(
        root,
        sizes={name: size for name, size in named if size is not None},
        broken={name for name, size in named if size is None},
    )


def list_files(root: Path, suffix: str) -> list[Path]:
    """Return the files with a suffix below a folder in sorted order, without hidden ones."""
    files = (path for path in root.rglob(f"*{suffix}") if path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts))


def mentions_words(path: Path, *words: str) -> bool:
    """Return whether a text file contains all of these words; False if it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return all(word.encode() in content for word in words)


def try_read_size(path: Path) -> tuple[int, int] | None:
    """Return the upright size of a picture; None if it cannot be read."""
    try:
        return read_upright_size(path)
    except PILLOW_ERRORS:
        return None


def find_box_problem(box: LabelledBox, width: int, height: int) -> ProblemKind | None:
    """Return why a box cannot be used in a picture of this size; None if it can."""
    if not all(map(math.isfinite, (box.x, box.y, box.width, box.height))):
        return ProblemKind.BOX_BROKEN
    if box.width <= 0 or box.height <= 0:
        return ProblemKind.BOX_EMPTY
    overhang = max(-box.x, -box.y, box.x + box.width - width, box.y + box.height - height)
    if overhang > MAX_OVERHANG_PIXELS:
        return ProblemKind.BOX_OUTSIDE
    inside = cut_overhang(box, width, height)
    return ProblemKind.BOX_EMPTY if inside.width <= 0 or inside.height <= 0 else None


def cut_overhang(box: LabelledBox, width: int, height: int) -> LabelledBox:
    """Return a box cut at the border of its picture; one that lies inside stays as it is."""
    x, y = max(box.x, 0.0), max(box.y, 0.0)
    right, bottom = min(box.x + box.width, width), min(box.y + box.height, height)
    new_width = box.width if x == box.x and right == box.x + box.width else right - x
    new_height = box.height if y == box.y and bottom == box.y + box.height else bottom - y
    return replace(box, x=x, y=y, width=new_width, height=new_height)
