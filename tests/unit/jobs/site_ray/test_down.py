"""`equipoise down` where there is nothing to end."""

from jobs.site_ray.down import main


def test_a_folder_without_a_ray_is_told_and_left_alone(tmp_path, capsys):
    assert main(["--results", str(tmp_path)]) == 0
    assert "no Ray runs that equipoise up started" in capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_is_not_there_is_refused(tmp_path, capsys):
    assert main(["--results", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err
