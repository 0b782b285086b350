"""What `jobs.links` measures: sums by every all-reduce algorithm, and messages on each level of the network."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from equipoise.errors import EquipoiseError
from equipoise.number_bounds import Count, NonNegativeNumber, PositiveNumber
from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

if TYPE_CHECKING:
    import pandas as pd

LINKS_FILE, LINK_REPORT_FILE = "links.csv", "links.json"
LinkSchema = Literal[1]
LINK_SCHEMA: LinkSchema = 1
NetworkLevel = Literal["within a node", "between nodes"]


@dataclass(frozen=True, kw_only=True)
class LinkTiming:
    """Delay and rate of the slowest link of one level, from messages between two workers, back and forth."""

    level: NetworkLevel
    """where the two workers are"""
    pairs: Count
    """pairs of workers that were timed"""
    delay_seconds: NonNegativeNumber
    """half of a round trip of a small message"""
    bytes_a_second: PositiveNumber
    """rate of a large message"""


@dataclass(frozen=True, kw_only=True)
class SumTiming:
    """Row of links.csv: sums of one size by one algorithm, timed with nothing else running."""

    algorithm: AppliedAllReduce
    """all-reduce algorithm; `backend` is the sum of torch's own process group"""
    nodes: Count
    """nodes that the workers were on"""
    ranks: Count
    """workers on all nodes"""
    bytes: Count
    """size of the tensor that was summed"""
    seconds: PositiveNumber
    """median seconds of a sum, each as long as its slowest worker"""
    seconds_low: PositiveNumber
    """seconds that a tenth of the sums were faster than"""
    seconds_high: PositiveNumber
    """seconds that a tenth of the sums were slower than"""
    closed_form_seconds: NonNegativeNumber | None = None
    """seconds by the algorithm's closed form, whose delay and rate are fitted to all of its sizes; empty if they are
    too close to each other"""
    rounds: Count
    """messages that wait for each other"""
    sent_bytes: NonNegativeNumber
    """bytes that leave a worker by the schedule of the algorithm, averaged over workers"""
    counted_bytes: float | None = None
    """bytes that leave a worker as the kernel counts them on the interfaces that carry them, with all headers, averaged
    over workers; empty where sums do not pass the kernel, as with NCCL"""


@dataclass(frozen=True, kw_only=True)
class LinkReport:
    """Links of a cluster, and the sums that travel on them."""

    links: tuple[LinkTiming, ...]
    """levels of the network"""
    sums: tuple[SumTiming, ...]
    """sums by each algorithm and size"""
    backend: str = "gloo"
    """name of torch's backend"""
    interfaces: tuple[str, ...] = ()
    """network interfaces of the first node whose bytes were counted; empty if none were"""
    schema: LinkSchema = LINK_SCHEMA
    """version of this format"""

    @property
    def nodes(self) -> int:
        """Number of nodes that the workers were on."""
        return self.sums[0].nodes

    @property
    def ranks(self) -> int:
        """Number of workers on all nodes."""
        return self.sums[0].ranks

    @property
    def sizes(self) -> list[int]:
        """Sizes of the tensors that were summed, the smallest first."""
        return sorted({row.bytes for row in self.sums})

    @property
    def algorithms(self) -> list[AppliedAllReduce]:
        """Algorithms that were timed, in the order of the rows."""
        return list(dict.fromkeys(row.algorithm for row in self.sums))

    def to_table(self) -> "pd.DataFrame":
        """Return the sums as the rows of links.csv."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.sums])

    def to_json(self) -> JsonObject:
        """Return the contents of links.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, contents: object) -> "LinkReport":
        """Decode the contents of links.json; refuse contents that are invalid or of another schema."""
        if not isinstance(contents, dict) or contents.get("schema") != LINK_SCHEMA or not contents.get("sums"):
            raise EquipoiseError("file-damaged", f"it is not a measurement of links of schema {LINK_SCHEMA}")
        return decode_json_value(contents, cls, code="file-damaged", problem="the measurement of links is damaged")
