"""Key of a stream of requests: the model, its version, and where clients say that the images come from."""

from typing import NamedTuple, Self


class StreamKey(NamedTuple):
    """Requests to one version of a model, of all sources or of one; its text is model/version or model/version/source.

    Neither the name of a model nor a version holds a slash; a source may.
    """

    model: str
    version: str
    source: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a key."""
        return cls(*text.split("/", 2))

    def __str__(self) -> str:
        return "/".join(part for part in self if part is not None)

    @property
    def all_sources(self) -> "StreamKey":
        """Key of the stream that holds the requests of all sources."""
        return self._replace(source=None)

    def covers(self, other: "StreamKey") -> bool:
        """Return whether another key is this one or that of one of its sources."""
        return other == self or (self.source is None and other.all_sources == self)
