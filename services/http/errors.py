"""What a client is told when its request cannot be answered."""

LONGEST = 280  # characters of a sentence, which may hold what the client sent


class Refused(Exception):  # noqa: N818  # nothing went wrong on our side
    """An answer that is no answer: an HTTP status, a sentence, and one word for it, to be counted by."""

    def __init__(self, status: int, sentence: str, reason: str = "input", wait: int | None = None) -> None:
        """`wait`: seconds after which it is worth another try."""
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence if len(sentence) <= LONGEST else f"{sentence[:LONGEST]}..."
        self.reason = reason
        self.wait = wait
