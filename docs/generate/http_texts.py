"""Texts of the page of the HTTP API that are not in the code."""

GROUPS = {
    "Predictions": ("/predict", "/models"),
    "Drift": ("/drift",),
    "Captures": (
        "/capture",
        "/label",
    ),
    "State of the service": ("/", "/try", "/live", "/health", "/ready", "/metrics"),
}
"""path prefixes by the title of their section"""
HTTP_INTRODUCTION = """\
The endpoints of `services.app`. A running service describes itself in the same words: at `/docs` for people, and at
`/openapi.json` as an OpenAPI 3.1 document, in which the names of its models and its limits stand. Replies are JSON
unless something else is said. Every error is one sentence, `{"error": "..."}`, with one of the [statuses](#errors)
below."""
HEADERS_TEXT = "Every request may carry these headers:"
REQUEST_HEADERS = {
    "`authorization` or `x-api-key`": "The key, if the service requires one: see [Keys](#keys).",
    "`x-request-id`": "Id of the request, up to 128 printable characters, which the reply and the access log repeat."
    " Without it the service draws one.",
    "`x-source`": "Where the images come from, such as a camera or a shop, up to 64 printable characters. Each source"
    " also has drift charts of its own.",
    "`content-encoding`": "`gzip` or `deflate` for a compressed body.",
}
KEYS_TEXT = """\
A service that was started with `api_keys_file` answers only requests that carry one of the keys in that file; without
keys it listens on this machine alone. The key is sent in one of three ways:

- `authorization: Bearer KEY`
- `x-api-key: KEY`
- as the password of HTTP basic authentication, with any user name, for `GET` only. A browser asks for it, so that the
  pages can be opened.

A request without a valid key gets a 401. `/health`, `/ready`, `/v2/health/live` and `/v2/health/ready` need no key,
because orchestrators have none. Requests that change something (`POST /drift/reset` and the labels of captures) are
refused with a 403 if a browser sends them for a page of another site."""
PROTOCOL_TEXT = """\
The endpoints under `/v2` follow version 2 of the Open Inference Protocol, so that clients of Triton and KServe work
without changes. `/v2/models/{name}` lists the tensors of a model. One of images takes one of two inputs:

| tensor | datatype | shape | content |
|---|---|---|---|
| `pictures` (input) | `UINT8` | images, channels, height, width | Images of the size that the model takes. |
| `encoded` (input) | `BYTES` | images | PNG, JPEG or WebP files of any size. |
| `labels` (output) | `BYTES` | images | Class with the highest score. |
| `scores` (output) | `FP32` | images, classes | Calibrated probabilities in the order of the classes. |

One of a table takes rows as [`TableSpec`](file-formats.md#tablespec) encodes them, and a language model takes tokens:

| tensor | datatype | shape | content |
|---|---|---|---|
| `numbers` (input) | `FP32` | rows, features | Standardized numbers, if the table has columns of numbers. |
| `codes` (input) | `INT64` | rows, columns | Places of the categories from 1 on, 0 for others, if there are texts. |
| `labels`, `scores` (output) | `BYTES`, `FP32` | rows; rows, classes | As above, for a label of classes. |
| `value`, `low`, `high` (output) | `FP64` | rows | Number and ends of its interval, in the unit of the label. |
| `tokens` (input) | `INT64` | texts, length | Places of the characters in the vocabulary. |
| `logits` (output) | `FP32` | texts, length, vocabulary | Scores of the next token after each. |

- A request holds at most as many examples as the limit `batch`, which is `max_batch_size` in `/config`.
- Tensors are JSON, or bytes after the JSON (the extension `binary_tensor_data`): the header
  `inference-header-content-length` gives the length of the JSON, `binary_data_size` in the parameters of a tensor that
  of its bytes. With the header `0` the whole body is the bytes of `pictures` or of the only input.
- `binary_data_output` in the parameters of the request, or `binary_data` in those of an output, asks for bytes.
- Each endpoint of a model also exists below `/v2/models/{name}/versions/{version}`. Only the version being served is
  found there, any other is a 404.
- `/v2/models/{name}/stats` answers 501: statistics are at `/metrics`."""
ERRORS_TEXT = """\
A reply with status 429 has a `retry-after` header, and so have those with status 503 that pass by themselves. Where a
body is rejected before it has arrived completely, the service reads and discards the rest. Besides the statuses that
an endpoint lists, 401 comes from every endpoint that needs a key, 405 from a path that does not take the method, and
500 from a bug of the service."""
TYPES_TEXT = """\
The types of bodies and replies, with the keys of their JSON. Those that files hold too are on the page of
[file formats](file-formats.md)."""
