"""Errors as HTTP answers, in the shape that OpenAI clients read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from semcache.errors import (
    ConfigurationError,
    RateLimitedError,
    SemcacheError,
    StoreUnavailableError,
    UnknownLookupError,
)

KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
UNKNOWN_ID = "unknown or expired id"


@dataclass
class HttpError(Exception):
    """Something that ends a request with a status.

    Attributes:
        code: A word for machines, None without one.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())

    @property
    def body(self) -> bytes:
        """The answer's body."""
        return error_body(self.status, self.message, code=self.code, param=self.param)


def error_body(status: int, message: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """Return the JSON of an error."""
    kind = KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}, ensure_ascii=True).encode()


def http_error(error: SemcacheError) -> HttpError:
    """Return what an error of the cache means to a caller of the API."""
    if isinstance(error, UnknownLookupError):
        return HttpError(404, UNKNOWN_ID, "unknown_id")
    if isinstance(error, RateLimitedError):
        after = str(max(1, round(error.retry_after)))
        return HttpError(429, str(error), "rate_limited", headers=(("retry-after", after),))
    if isinstance(error, ConfigurationError):
        return HttpError(400, str(error), "invalid_value")
    if isinstance(error, StoreUnavailableError):
        return HttpError(
            503,
            "the store didn't acknowledge; try again",
            "store_unavailable",
            headers=(("retry-after", "1"),),
        )
    return HttpError(503, f"{type(error).__name__}: {error}", "unavailable")
