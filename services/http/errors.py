"""What a client is told when its request cannot be answered: every such sentence but those about what a body holds.

What is wrong with the content of a body (400) is worded where the body is read, in `tensor_codec`, `request_body`,
`image_decoding` and the routes. All the rest is here, in the order of its HTTP status.
"""

LONGEST = 280  # characters of a sentence, which may hold what the client sent

REFUSALS = {
    400: "what came cannot be understood",
    401: "an API key is needed",
    403: "a page of another site asks",
    404: "there is no such model",
    408: "the request took too long to arrive",
    413: "the request, or its picture, is too large",
    415: "of an unknown type",
    429: "too many requests wait: try again after Retry-After seconds",
    503: "not ready, or its turn came too late",
}
"""what each status of a refusal means, as the OpenAPI document says it"""
FAILED = "the service failed at this request; its log says why"
"""of a 500"""


class Refused(Exception):  # noqa: N818  # nothing went wrong on our side
    """An answer that is no answer: an HTTP status, a sentence, and one word for it, to be counted by."""

    def __init__(self, status: int, sentence: str, reason: str = "input", wait: int | None = None) -> None:
        """`wait`: seconds after which it is worth another try."""
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence if len(sentence) <= LONGEST else f"{sentence[:LONGEST]}..."
        self.reason = reason
        self.wait = wait


def not_http() -> Refused:
    """Build the 400 for bytes that are no HTTP request."""
    return Refused(400, "this is no HTTP request")


def key_is_missing() -> Refused:
    """Build the 401 for a request without a key, or with an unknown one."""
    return Refused(401, "an API key is needed: send it as authorization: Bearer KEY", "key")


def other_site_asks() -> Refused:
    """Build the 403 for what a page of another site has a browser send."""
    return Refused(403, "a page of another site asks for this: ask from here, or by a program", "site")


def path_is_unknown(path: str) -> Refused:
    """Build the 404 for a path that the service does not have."""
    return Refused(404, f"there is nothing at {path[:80]!r}: see /docs", "path")


def page_is_unknown(path: str) -> Refused:
    """Build the 404 for a page of runs that does not exist."""
    return Refused(404, f"there is no page at {path[:80]!r}: see /", "path")


def model_is_not_named(models: str) -> Refused:
    """Build the 404 for a request that names no model where there are several."""
    return Refused(404, f"there are several models: ask for one of {models}", "unknown model")


def model_is_unknown(name: str, models: str) -> Refused:
    """Build the 404 for a model that is not served."""
    return Refused(404, f"there is no model {name[:80]!r}: there are {models}", "unknown model")


def version_is_unknown(model: str, current: str, version: str) -> Refused:
    """Build the 404 for a version of a model other than the one that answers."""
    return Refused(404, f"{model} answers as {current}, not as version {version[:80]!r}", "unknown model")


def nothing_to_compare(model: str) -> Refused:
    """Build the 404 for a comparison where only one version answers."""
    return Refused(404, f"{model} has no canary and no shadow to be compared with", "unknown model")


def drift_is_off() -> Refused:
    """Build the 404 for questions about drift where nothing watches for it."""
    return Refused(404, "drift is not watched for: start the service with drift=true", "drift")


def captures_are_off() -> Refused:
    """Build the 404 for questions about captures where none are kept."""
    return Refused(404, "no request is kept: start the service with capture=FOLDER", "capture")


def capture_is_unknown(error: Exception) -> Refused:
    """Build the 404 for a capture that does not exist."""
    return Refused(404, str(error), "capture")


def method_is_not_allowed(method: str, path: str) -> Refused:
    """Build the 405 for a path that is asked with the wrong method."""
    return Refused(405, f"{method} is not for {path[:80]!r}: see /docs", "path")


def body_is_slow(seconds: float) -> Refused:
    """Build the 408 for a body that did not arrive in time."""
    return Refused(408, f"the request took over {seconds:g} s to arrive", "slow")


def head_is_slow(seconds: float) -> Refused:
    """Build the 408 for a head that did not arrive in time."""
    return Refused(408, f"the head of the request took over {seconds:g} s to arrive", "slow")


def page_cannot_be_shown(name: str, why: str) -> Refused:
    """Build the 409 for a page whose run cannot be read."""
    return Refused(409, f"{name}: {why}")


def body_is_too_large(most: int) -> Refused:
    """Build the 413 for a body of more than `most` bytes."""
    return Refused(413, f"a request may have {most} bytes", "too large")


def unpacked_body_is_too_large(most: int) -> Refused:
    """Build the 413 for a compressed body of more than `most` bytes without its compression."""
    return Refused(413, f"a request may have {most} bytes unpacked", "too large")


def picture_is_too_large(most: int, why: str) -> Refused:
    """Build the 413 for a picture of more than `most` pixels."""
    return Refused(413, f"a picture may have {most} pixels ({why})", "too large")


def too_many_pictures(most: int, got: int) -> Refused:
    """Build the 413 for a request with more than `most` pictures."""
    return Refused(413, f"a request may have {most} pictures, this one has {got}", "too large")


def tensor_is_too_large(name: str, most: int) -> Refused:
    """Build the 413 for a tensor of more than `most` elements."""
    return Refused(413, f"{name!r} has more than {most} elements", "too large")


def encoding_is_unknown(encoding: str) -> Refused:
    """Build the 415 for a body that is packed in an unknown way."""
    return Refused(415, f"content-encoding {encoding[:40]!r} is not known: send gzip, deflate or none", "encoding")


def content_type_is_unknown(kind: str) -> Refused:
    """Build the 415 for a body of an unknown type."""
    remedy = "send image/png, image/jpeg, image/webp, multipart/form-data or application/json"
    return Refused(415, f"content-type {kind[:60]!r} is not known: {remedy}", "content type")


def queue_is_full(waiting: int) -> Refused:
    """Build the 429 for a request to a model for which as many wait as may."""
    return Refused(429, f"{waiting} requests wait already: try again", "busy", wait=1)


def too_much_is_sent() -> Refused:
    """Build the 429 for a body that does not fit in memory beside all others that are being sent."""
    return Refused(429, "too much is being sent at once: try again", "busy", wait=1)


def head_is_too_large(most: int) -> Refused:
    """Build the 431 for a head of more than `most` bytes."""
    return Refused(431, f"the head of a request may have {most} bytes", "too large")


def counts_are_elsewhere() -> Refused:
    """Build the 501 for counts in the form of the Open Inference Protocol."""
    return Refused(501, "counts are at /metrics, in Prometheus' format", "not implemented")


def turn_came_too_late() -> Refused:
    """Build the 503 for a request that waited longer than it may."""
    return Refused(503, "its turn came too late: try again", "late", wait=1)


def monitor_is_away() -> Refused:
    """Build the 503 for questions about drift while the monitor does not answer."""
    return Refused(503, "the monitor does not answer: it is being restarted, try again", "drift", wait=5)


def captures_are_away(error: Exception) -> Refused:
    """Build the 503 for captures whose place cannot be reached."""
    why = f"the captures cannot be reached ({type(error).__name__}): the service's log says more"
    return Refused(503, why, "capture", wait=5)
