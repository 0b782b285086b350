"""What a client is told when its request cannot be answered: every such sentence but those about what a body holds.

What is wrong with the content of a body (400) is worded where the body is read, in `tensor_codec`, `request_body`,
`image_decoding` and the routes. All the rest is here, in the order of its HTTP status.
"""

MAX_MESSAGE_LENGTH = 280  # characters of a sentence, which may hold what the client sent

REJECTION_DESCRIPTIONS = {
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


class RequestRejected(Exception):  # noqa: N818  # nothing went wrong on our side
    """An answer that is no answer: an HTTP status, a sentence, and one word for it, to be counted by."""

    def __init__(
        self, status: int, message: str, reason: str = "input", retry_after_seconds: int | None = None
    ) -> None:
        """`wait`: seconds after which it is worth another try."""
        super().__init__(message)
        self.status = status
        self.message = message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}..."
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


def not_http() -> RequestRejected:
    """Build the 400 for bytes that are no HTTP request."""
    return RequestRejected(400, "this is no HTTP request")


def key_is_missing() -> RequestRejected:
    """Build the 401 for a request without a key, or with an unknown one."""
    return RequestRejected(401, "an API key is needed: send it as authorization: Bearer KEY", "key")


def other_site_asks() -> RequestRejected:
    """Build the 403 for what a page of another site has a browser send."""
    return RequestRejected(403, "a page of another site asks for this: ask from here, or by a program", "site")


def path_is_unknown(path: str) -> RequestRejected:
    """Build the 404 for a path that the service does not have."""
    return RequestRejected(404, f"there is nothing at {path[:80]!r}: see /docs", "path")


def page_is_unknown(path: str) -> RequestRejected:
    """Build the 404 for a page of runs that does not exist."""
    return RequestRejected(404, f"there is no page at {path[:80]!r}: see /", "path")


def model_is_not_named(models: str) -> RequestRejected:
    """Build the 404 for a request that names no model where there are several."""
    return RequestRejected(404, f"there are several models: ask for one of {models}", "unknown model")


def model_is_unknown(name: str, models: str) -> RequestRejected:
    """Build the 404 for a model that is not served."""
    return RequestRejected(404, f"there is no model {name[:80]!r}: there are {models}", "unknown model")


def version_is_unknown(model: str, current: str, version: str) -> RequestRejected:
    """Build the 404 for a version of a model other than the one that answers."""
    return RequestRejected(404, f"{model} answers as {current}, not as version {version[:80]!r}", "unknown model")


def nothing_to_compare(model: str) -> RequestRejected:
    """Build the 404 for a comparison where only one version answers."""
    return RequestRejected(404, f"{model} has no canary and no shadow to be compared with", "unknown model")


def drift_is_off() -> RequestRejected:
    """Build the 404 for questions about drift where nothing watches for it."""
    return RequestRejected(404, "drift is not watched for: start the service with drift=true", "drift")


def captures_are_off() -> RequestRejected:
    """Build the 404 for questions about captures where none are kept."""
    return RequestRejected(404, "no request is kept: start the service with capture_dir=FOLDER", "capture")


def capture_is_unknown(error: Exception) -> RequestRejected:
    """Build the 404 for a capture that does not exist."""
    return RequestRejected(404, str(error), "capture")


def method_is_not_allowed(method: str, path: str) -> RequestRejected:
    """Build the 405 for a path that is asked with the wrong method."""
    return RequestRejected(405, f"{method} is not for {path[:80]!r}: see /docs", "path")


def body_is_slow(seconds: float) -> RequestRejected:
    """Build the 408 for a body that did not arrive in time."""
    return RequestRejected(408, f"the request took over {seconds:g} s to arrive", "slow")


def head_is_slow(seconds: float) -> RequestRejected:
    """Build the 408 for a head that did not arrive in time."""
    return RequestRejected(408, f"the head of the request took over {seconds:g} s to arrive", "slow")


def page_cannot_be_shown(name: str, why: str) -> RequestRejected:
    """Build the 409 for a page whose run cannot be read."""
    return RequestRejected(409, f"{name}: {why}")


def body_is_too_large(most: int) -> RequestRejected:
    """Build the 413 for a body of more than `most` bytes."""
    return RequestRejected(413, f"a request may have {most} bytes", "too large")


def unpacked_body_is_too_large(most: int) -> RequestRejected:
    """Build the 413 for a compressed body of more than `most` bytes without its compression."""
    return RequestRejected(413, f"a request may have {most} bytes unpacked", "too large")


def picture_is_too_large(most: int, why: str) -> RequestRejected:
    """Build the 413 for a picture of more than `most` pixels."""
    return RequestRejected(413, f"a picture may have {most} pixels ({why})", "too large")


def too_many_pictures(most: int, got: int) -> RequestRejected:
    """Build the 413 for a request with more than `most` pictures."""
    return RequestRejected(413, f"a request may have {most} pictures, this one has {got}", "too large")


def tensor_is_too_large(name: str, most: int) -> RequestRejected:
    """Build the 413 for a tensor of more than `most` elements."""
    return RequestRejected(413, f"{name!r} has more than {most} elements", "too large")


def encoding_is_unknown(encoding: str) -> RequestRejected:
    """Build the 415 for a body that is packed in an unknown way."""
    return RequestRejected(
        415, f"content-encoding {encoding[:40]!r} is not known: send gzip, deflate or none", "encoding"
    )


def content_type_is_unknown(kind: str) -> RequestRejected:
    """Build the 415 for a body of an unknown type."""
    remedy = "send image/png, image/jpeg, image/webp, multipart/form-data or application/json"
    return RequestRejected(415, f"content-type {kind[:60]!r} is not known: {remedy}", "content type")


def queue_is_full(waiting: int) -> RequestRejected:
    """Build the 429 for a request to a model for which as many wait as may."""
    return RequestRejected(429, f"{waiting} requests wait already: try again", "busy", retry_after_seconds=1)


def too_much_is_sent() -> RequestRejected:
    """Build the 429 for a body that does not fit in memory beside all others that are being sent."""
    return RequestRejected(429, "too much is being sent at once: try again", "busy", retry_after_seconds=1)


def head_is_too_large(most: int) -> RequestRejected:
    """Build the 431 for a head of more than `most` bytes."""
    return RequestRejected(431, f"the head of a request may have {most} bytes", "too large")


def counts_are_elsewhere() -> RequestRejected:
    """Build the 501 for counts in the form of the Open Inference Protocol."""
    return RequestRejected(501, "counts are at /metrics, in Prometheus' format", "not implemented")


def turn_came_too_late() -> RequestRejected:
    """Build the 503 for a request that waited longer than it may."""
    return RequestRejected(503, "its turn came too late: try again", "late", retry_after_seconds=1)


def monitor_is_away() -> RequestRejected:
    """Build the 503 for questions about drift while the monitor does not answer."""
    return RequestRejected(
        503, "the monitor does not answer: it is being restarted, try again", "drift", retry_after_seconds=5
    )


def captures_are_away(error: Exception) -> RequestRejected:
    """Build the 503 for captures whose place cannot be reached."""
    why = f"the captures cannot be reached ({type(error).__name__}): the service's log says more"
    return RequestRejected(503, why, "capture", retry_after_seconds=5)
