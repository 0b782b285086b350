"""Output folders of commands that measure on the cluster."""

import pytest

from equipoise.errors import EquipoiseError
from equipoise.runs.folder import lock_folder
from jobs.timing.measurement_output import RAY_FOLDER, open_measurement_output, require_measurement_output


def test_folder_where_a_file_is_to_be_written_is_refused(tmp_path):
    (tmp_path / "links.csv").mkdir()
    with pytest.raises(EquipoiseError, match="remove it, or choose another --out"):
        require_measurement_output(tmp_path, "link measurement", ("links.html", "links.csv"))


def test_usable_folder_is_returned_as_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = require_measurement_output((tmp_path / "new").relative_to(tmp_path), "profile", ("profile.json",))
    assert out == tmp_path / "new"
    assert not out.exists()  # nothing is written before something has been measured


@pytest.mark.parametrize("fails", [False, True])
def test_folder_of_ray_is_deleted_and_the_lock_released_at_the_end(tmp_path, fails):
    try:
        with open_measurement_output(tmp_path / "out") as ray_folder:
            ray_folder.mkdir()
            with pytest.raises(EquipoiseError), lock_folder(tmp_path / "out"):
                pass  # another command has the folder now
            if fails:
                raise RuntimeError("a worker failed")
    except RuntimeError:
        assert fails
    assert not (tmp_path / "out" / RAY_FOLDER).exists()
    with lock_folder(tmp_path / "out"):
        pass
