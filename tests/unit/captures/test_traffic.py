"""A sample of the traffic since an alarm: uniform, bounded, and of one version."""

import numpy as np
import pytest
from scipy.stats import kstest

from equipoise.captures.traffic import MAX_TRAFFIC_IMAGES, TrafficSample
from tests.support.captures import build_request, decode_png


def build_numbered_request(number, score):
    picture = np.full((1, 8, 8), number % 256, np.uint8)
    picture[0, 0, 0] = number // 256
    return build_request(score, picture=picture, pool="drift", is_uniform=True)


def test_at_most_a_thousand_requests_are_kept_and_each_has_the_same_chance(tmp_path, monkeypatch):
    monkeypatch.setattr("equipoise.captures.traffic.MAX_TRAFFIC_IMAGES", 40)
    assert MAX_TRAFFIC_IMAGES == 1000
    kept = []
    for _ in range(8):
        folder = tmp_path / str(len(kept))
        sample = TrafficSample(str(folder), "v1")
        for number in range(200):
            sample.offer(build_numbered_request(number, score=1.0 if number % 2 else 0.2), 1.0)
        images = [decode_png(png) for png in sample.read_pngs(0)]
        assert len(images) == 40
        kept += [image[4, 4] for image in images]
    assert kstest(np.array(kept) / 200, "uniform").pvalue > 1e-3
    assert 0.35 < np.mean(np.array(kept) % 2) < 0.65  # uncertain requests are no more likely


@pytest.mark.parametrize("location", ["kept", "kept/"])
def test_versions_do_not_share_a_sample(tmp_path, location):
    first, second = (TrafficSample(f"{tmp_path}/{location}", version) for version in ("v1", "v2"))
    assert first.offer(build_numbered_request(1, 0.5), 1.0)
    assert len(first.read_pngs(0)) == 1 and second.read_pngs(0) == []


def test_damaged_pictures_are_left_out(tmp_path):
    sample = TrafficSample(str(tmp_path), "v1")
    for number in range(3):
        sample.offer(build_numbered_request(number, 0.5), 1.0)
    first, second, _ = sorted((tmp_path / "traffic-v1").glob("*.png"))
    first.write_bytes(b"no picture")
    second.unlink()
    assert len(sample.read_pngs(0)) == 1


def test_location_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    sample = TrafficSample(str(tmp_path / "file"), "v1")
    assert not sample.offer(build_numbered_request(1, 0.5), 1.0)
    assert "cannot write captures" in sample.store.last_error
