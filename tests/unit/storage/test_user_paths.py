"""Locations that a user gives, as processes elsewhere need them."""

from equipoise.storage.user_paths import make_absolute


def test_path_is_made_absolute_and_a_url_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_absolute("data/x") == str(tmp_path / "data" / "x")
    for location in (str(tmp_path / "x"), "s3://bucket/x", "file:///shared/x"):
        assert make_absolute(location) == location
