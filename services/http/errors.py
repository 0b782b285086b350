"""Error messages for rejected requests, in the order of their HTTP status, except those about the content of a body.

What is wrong with the content of a body (400) is worded where the body is read: in `tensor_codec`, `request_body`,
`image_decoding` and the routes.
"""

from equipoise.formatting import make_printable

MAX_MESSAGE_LENGTH = 280  # characters of a message, which may repeat what the client sent

REJECTION_DESCRIPTIONS = {
    400: "the request cannot be understood",
    401: "an API key is required",
    403: "the request comes from a page of another site",
    404: "there is no such model or capture, or the service was started without what is asked for",
    408: "the request took too long to arrive",
    413: "the request or its image is too large",
    415: "the content type or encoding is not supported",
    429: "too many requests are waiting: try again after Retry-After seconds",
    503: "the service is not ready, or the request waited too long",
}
"""meaning of each status of a rejection, for the OpenAPI document"""
INTERNAL_ERROR_MESSAGE = "the service failed to answer this request: see its log"
"""message of a 500"""


class RequestRejected(Exception):  # noqa: N818  # nothing went wrong on our side
    """A request that is not answered: HTTP status, message, and a one-word reason that the metrics count."""

    def __init__(
        self, status: int, message: str, reason: str = "input", retry_after_seconds: int | None = None
    ) -> None:
        """Cut the message to `MAX_MESSAGE_LENGTH`; `retry_after_seconds` becomes the Retry-After header.

        Characters that cannot be shown, such as line breaks and halves of surrogate pairs, are escaped.
        """
        super().__init__(message)
        self.status = status
        shown = message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}..."
        self.message = make_printable(shown)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


def not_http() -> RequestRejected:
    """Build the 400 for bytes that are not an HTTP request."""
    return RequestRejected(400, "the bytes received are not an HTTP request")


def key_is_missing() -> RequestRejected:
    """Build the 401 for a request without a key, or with an unknown one."""
    return RequestRejected(401, "an API key is required: send it as authorization: Bearer KEY", "key")


def other_site_asks() -> RequestRejected:
    """Build the 403 for a request that a page of another site makes a browser send."""
    message = "cannot accept a request from a page of another site: send it from this service's page or from a program"
    return RequestRejected(403, message, "site")


def path_is_unknown(path: str) -> RequestRejected:
    """Build the 404 for a path that the service does not have."""
    return RequestRejected(404, f"there is nothing at {path[:80]!r}: see /docs", "path")


def page_is_unknown(path: str) -> RequestRejected:
    """Build the 404 for a page of runs that does not exist."""
    return RequestRejected(404, f"there is no page at {path[:80]!r}: see / for all pages", "path")


def model_is_not_named(models: str) -> RequestRejected:
    """Build the 404 for a request that names no model where several are served."""
    return RequestRejected(404, f"several models are served: name one of {models}", "unknown model")


def model_is_unknown(name: str, models: str) -> RequestRejected:
    """Build the 404 for a model that is not served."""
    return RequestRejected(404, f"there is no model {name[:80]!r}: the service has {models}", "unknown model")


def version_is_unknown(model: str, current: str, version: str) -> RequestRejected:
    """Build the 404 for a version of a model other than the one being served."""
    message = f"{model} is served as version {current}, not as version {version[:80]!r}"
    return RequestRejected(404, message, "unknown model")


def nothing_to_compare(model: str) -> RequestRejected:
    """Build the 404 for a comparison where only one version is served."""
    return RequestRejected(404, f"{model} has no canary and no shadow version to compare with", "unknown model")


def drift_is_off() -> RequestRejected:
    """Build the 404 for requests about drift to a service without drift detection."""
    return RequestRejected(404, "drift detection is off: start the service with drift=true", "drift")


def captures_are_off() -> RequestRejected:
    """Build the 404 for requests about captures to a service that keeps none."""
    return RequestRejected(404, "capturing is off: start the service with capture_dir=FOLDER", "capture")


def labelling_is_off() -> RequestRejected:
    """Build the 404 for the labelling page of a service that has no folder for labels."""
    return RequestRejected(404, "labelling is off: start the service with capture_dir and label_dir=FOLDER", "path")


def capture_is_unknown(error: Exception) -> RequestRejected:
    """Build the 404 for a capture that does not exist."""
    return RequestRejected(404, str(error), "capture")


def method_is_not_allowed(method: str, path: str) -> RequestRejected:
    """Build the 405 for a path that does not accept the request's method."""
    return RequestRejected(405, f"{method} is not allowed at {path[:80]!r}: see /docs", "path")


def body_is_slow(seconds: float) -> RequestRejected:
    """Build the 408 for a body that did not arrive in time."""
    return RequestRejected(408, f"the request took more than {seconds:g} s to arrive", "slow")


def head_is_slow(seconds: float) -> RequestRejected:
    """Build the 408 for a request head (request line and headers) that did not arrive in time."""
    return RequestRejected(408, f"the request headers took more than {seconds:g} s to arrive", "slow")


def page_cannot_be_shown(name: str, why: str) -> RequestRejected:
    """Build the 409 for a page whose run cannot be read."""
    return RequestRejected(409, f"{name}: {why}")


def body_is_too_large(max_bytes: int) -> RequestRejected:
    """Build the 413 for a body above the limit `body_bytes`."""
    return RequestRejected(413, f"the request body exceeds the limit of {max_bytes} bytes", "too large")


def unpacked_body_is_too_large(max_bytes: int) -> RequestRejected:
    """Build the 413 for a compressed body that decompresses to more than the limit `body_bytes`."""
    return RequestRejected(413, f"the decompressed request body exceeds the limit of {max_bytes} bytes", "too large")


def picture_is_too_large(max_pixels: int, why: str) -> RequestRejected:
    """Build the 413 for an image above the limit `pixels`."""
    return RequestRejected(413, f"the image exceeds the limit of {max_pixels} pixels ({why})", "too large")


def too_many_pictures(max_images: int, got: int) -> RequestRejected:
    """Build the 413 for a request with more images than the limit `batch`."""
    return RequestRejected(413, f"the request holds {got} images, the limit is {max_images}", "too large")


def too_many_rows(max_rows: int, got: int) -> RequestRejected:
    """Build the 413 for a request with more rows or texts than the limit `batch`."""
    return RequestRejected(413, f"the request holds {got} examples, the limit is {max_rows}", "too large")


def text_is_too_long(max_characters: int, got: int) -> RequestRejected:
    """Build the 413 for a text above the limit `characters`."""
    return RequestRejected(413, f"the text has {got} characters, the limit is {max_characters}", "too large")


def tensor_is_too_large(name: str, max_elements: int) -> RequestRejected:
    """Build the 413 for a tensor with too many elements."""
    return RequestRejected(413, f"the tensor {name!r} exceeds the limit of {max_elements} elements", "too large")


def encoding_is_unknown(encoding: str) -> RequestRejected:
    """Build the 415 for a body with an unsupported content-encoding."""
    message = f"cannot decode content-encoding {encoding[:40]!r}: send gzip, deflate or none"
    return RequestRejected(415, message, "encoding")


def content_type_is_unknown(kind: str) -> RequestRejected:
    """Build the 415 for a body with an unsupported content-type."""
    remedy = "send image/png, image/jpeg, image/webp, multipart/form-data or application/json"
    return RequestRejected(415, f"cannot read content-type {kind[:60]!r}: {remedy}", "content type")


def content_type_is_not_json(kind: str) -> RequestRejected:
    """Build the 415 for a body that is not JSON, to a model of rows or texts."""
    return RequestRejected(415, f"cannot read content-type {kind[:60]!r}: send application/json", "content type")


def queue_is_full(waiting: int) -> RequestRejected:
    """Build the 429 for a request to a model whose queue is full."""
    message = f"the queue is full, {waiting} requests wait already: try again"
    return RequestRejected(429, message, "busy", retry_after_seconds=1)


def too_much_is_sent() -> RequestRejected:
    """Build the 429 for a body that does not fit in memory beside all others being received."""
    message = "too many request bodies are being received at once: try again"
    return RequestRejected(429, message, "busy", retry_after_seconds=1)


def head_is_too_large(max_bytes: int) -> RequestRejected:
    """Build the 431 for a request head (request line and headers) that is too large."""
    return RequestRejected(431, f"the request headers exceed the limit of {max_bytes} bytes", "too large")


def counts_are_elsewhere() -> RequestRejected:
    """Build the 501 for statistics in the form of the Open Inference Protocol."""
    return RequestRejected(501, "statistics are only at /metrics, in the Prometheus format", "not implemented")


def turn_came_too_late() -> RequestRejected:
    """Build the 503 for a request that waited longer in the queue than allowed."""
    return RequestRejected(503, "the request waited too long in the queue: try again", "late", retry_after_seconds=1)


def monitor_is_away() -> RequestRejected:
    """Build the 503 for requests about drift while the drift monitor does not answer."""
    message = "the drift monitor does not answer, it is being restarted: try again"
    return RequestRejected(503, message, "drift", retry_after_seconds=5)


def captures_are_away(error: Exception) -> RequestRejected:
    """Build the 503 for captures whose folder or bucket cannot be reached."""
    message = f"the captures cannot be reached ({type(error).__name__}): see the service's log"
    return RequestRejected(503, message, "capture", retry_after_seconds=5)
