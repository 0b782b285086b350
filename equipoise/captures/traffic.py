"""Uniform samples of the requests: of those since an alarm, from which a new condition is learned, and of all others.

The captures for labelling are a weighted sample: uncertain images are in it more often. What a reference is measured on
must be like the traffic, so every request has the same chance here. Replicas share a folder without communicating, as
for other captures: `traffic-VERSION` below the location of the captures since an alarm, `usual-VERSION` without one.
"""

import re

from equipoise.captures.capture import IMAGE_FILE_PATTERN, CapturedRequest
from equipoise.captures.store import CaptureStore

MAX_TRAFFIC_IMAGES = 1000  # kept of one version of a model, since an alarm and without one
SAMPLE_FOLDER_PATTERN = re.compile("(?:traffic|usual)-[^/]+")


class TrafficSample:
    """Uniform sample of the requests to one version of a model since its last alarm, or of those without an alarm."""

    def __init__(
        self, captures_location: str, version: str, since_alarm: bool = True, listing_seconds: float = 0.0
    ) -> None:
        location = f"{captures_location.rstrip('/')}/{'traffic' if since_alarm else 'usual'}-{version}"
        capacity = 2 * MAX_TRAFFIC_IMAGES  # one of two pools is used
        self.store = CaptureStore(location, capacity, listing_seconds=listing_seconds)
        self._alarm_seconds = 0.0

    def offer(self, request: CapturedRequest, alarm_seconds: float = 0.0) -> bool:
        """Return whether a request was kept; requests from before the alarm, at this Unix time, are forgotten."""
        if alarm_seconds != self._alarm_seconds:
            self.store.remove_older(alarm_seconds)
            self._alarm_seconds = alarm_seconds
        return self.store.offer(request)

    def read_pngs(self, since: float = 0.0) -> list[bytes]:
        """Read the images that were answered since a Unix time, as PNG."""
        return self.store.read_pngs(since)


def is_sampled_image(path: str) -> bool:
    """Return whether a path, with slashes, is that of an image in one of these samples, which nobody labels."""
    folder, _, name = path.rpartition("/")
    is_sample = SAMPLE_FOLDER_PATTERN.fullmatch(folder.rpartition("/")[2]) is not None
    return is_sample and IMAGE_FILE_PATTERN.fullmatch(name) is not None
