"""A folder of labelled pictures in whichever of the three formats its labels have."""

from pathlib import Path

from equipoise.boxes.box import BoxedDataset
from equipoise.boxes.formats.coco import list_coco_files, read_coco
from equipoise.boxes.formats.voc import list_voc_files, read_voc
from equipoise.boxes.formats.yolo import list_yolo_files, read_yolo
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize

READERS = {"COCO's JSON": read_coco, "Pascal VOC's XML": read_voc, "YOLO's text": read_yolo}
LISTERS = {"COCO's JSON": list_coco_files, "Pascal VOC's XML": list_voc_files, "YOLO's text": list_yolo_files}


def read_boxed_folder(root: Path) -> BoxedDataset:
    """Read the labelled pictures of a folder; refuse one without labels, and one with labels in two formats."""
    if not root.is_dir():
        raise EquipoiseError("path-kind", f"{root} is not a folder", "give one with pictures and files of their boxes")
    counts = {name: len(lister(root)) for name, lister in LISTERS.items()}
    present = [name for name, count in counts.items() if count]
    if not present:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot read boxes in {root}: it holds no file of labels",
            f"add {', '.join(READERS)} beside the pictures",
        )
    if len(present) > 1:
        listed = " and ".join(f"{pluralize(counts[name], 'file')} of {name}" for name in present)
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot tell which labels of {root} count: it holds {listed}",
            "keep those of one format",
        )
    return READERS[present[0]](root)
