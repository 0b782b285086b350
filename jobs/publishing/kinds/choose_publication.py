"""Choice of the publication that fits a workload."""

from equipoise.errors import EquipoiseError
from equipoise.workloads import ImageWorkload, Workload
from equipoise.workloads.detection.workload import BoxWorkload
from equipoise.workloads.table.workload import TableWorkload
from equipoise.workloads.text.workload import TextWorkload
from jobs.publishing.kinds.boxes_publication import BoxesPublication
from jobs.publishing.kinds.image_publication import ImagePublication
from jobs.publishing.kinds.publication import Publication
from jobs.publishing.kinds.table_publication import TablePublication
from jobs.publishing.kinds.text_publication import TextPublication


def choose_publication(workload: Workload, purpose: str) -> Publication:
    """Return the publication of a workload's kind; refuse one whose kind of data is not known."""
    if isinstance(workload, ImageWorkload):
        return ImagePublication(workload)
    if isinstance(workload, BoxWorkload):
        return BoxesPublication(workload)
    if isinstance(workload, TableWorkload):
        return TablePublication(workload)
    if isinstance(workload, TextWorkload):
        return TextPublication(workload)
    raise EquipoiseError(
        "workload-invalid",
        f"cannot {purpose}: {workload.name} is a {type(workload).__name__}, which does not say what requests hold",
        "publish labelled images (an equipoise.ImageWorkload), or the workloads shelf, boxes, table and text",
    )
