"""Every exception that semcache raises on purpose.

    SemcacheError
    ├── ConfigurationError (ValueError)     a setting, policy or argument that can't be meant
    │   └── InvalidRequestError             a request, response, verdict or filter that can't be meant
    ├── MissingDependencyError (ImportError)  an extra isn't installed; names the pip command
    ├── StoreError                          something about the store
    │   ├── StoreUnavailableError           refused, timed out, read-only, out of memory
    │   └── UndecodableError (ValueError)   bytes in the store that aren't ours
    ├── EncoderError                        an encoder failed or returned what it may not
    ├── EmbeddedServerError                 the embedded server can't start here
    ├── UnknownLookupError (LookupError)    unknown, foreign, forged or expired lookup or entry id
    ├── UpstreamError                       a model's endpoint refused, or answered no completion
    ├── RateLimitedError                    more feedback than the policy allows
    └── OnlyIfCachedError                   `only_if_cached` was asked for, and it was a miss

Lookup, put and get_or_compute never raise `StoreError` or `EncoderError`: they fail open, and the
reason is in the result. Withdrawals (invalidate, feedback, restore, clear) raise
`StoreUnavailableError` unless the store acknowledged them.
"""

from __future__ import annotations


class SemcacheError(Exception):
    """Base of everything raised on purpose."""


class ConfigurationError(SemcacheError, ValueError):
    """A setting or argument that can't be meant."""


class InvalidRequestError(ConfigurationError):
    """A request, response, verdict or filter that can't be meant."""


class MissingDependencyError(SemcacheError, ImportError):
    """An optional dependency isn't installed.

    Attributes:
        extra: The extra that brings it, e.g. ``onnx``.
    """

    def __init__(self, what: str, *, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs an optional dependency; run: pip install 'llm-semcache[{extra}]'")


class StoreError(SemcacheError):
    """Something about the store."""


class StoreUnavailableError(StoreError):
    """The store didn't acknowledge: refused, timed out, read-only or out of memory."""


class UndecodableError(StoreError, ValueError):
    """Bytes in the store that this version of semcache can't read."""


class EncoderError(SemcacheError):
    """An encoder failed, or returned something that isn't an embedding."""


class EmbeddedServerError(SemcacheError):
    """The embedded server can't be started here; the message names what to do instead."""


class UnknownLookupError(SemcacheError, LookupError):
    """An unknown, foreign, forged or expired id; the four can't be told apart from outside."""


class UpstreamError(SemcacheError):
    """A model's endpoint can't be reached, refused, or answered something that isn't a completion."""


class RateLimitedError(SemcacheError):
    """More feedback from one principal than the policy allows.

    Attributes:
        retry_after: Seconds until the next one is accepted.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class OnlyIfCachedError(SemcacheError):
    """The request asked for a stored response only, and there was none that may be served."""
