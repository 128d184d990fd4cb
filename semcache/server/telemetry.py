"""OpenTelemetry traces of the cached endpoints, by the semantic conventions for generative AI. Optional.

Spans hold no prompt and no answer: model, token counts, and what the cache decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from semcache.errors import MissingDependencyError

if TYPE_CHECKING:
    from openai_semcache.exchange import Reply
    from semcache.server.journal import Seen
    from semcache.server.proxy import Noted

_OPERATIONS: Final = {
    "chat": "chat",
    "responses": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}


class Span:
    """One call's span; without telemetry it does nothing."""

    __slots__ = ("_operation", "_span")

    def __init__(self, span: Any, operation: str) -> None:
        self._span = span
        self._operation = operation

    def answered(self, noted: Noted, reply: Reply, seen: Seen | None) -> None:
        """Note what came of the call."""
        span = self._span
        if span is None:
            return
        span.set_attribute("http.response.status_code", reply.status)
        if reply.status >= 400:
            span.set_attribute("error.type", str(reply.status))
        if seen is None:
            return
        span.update_name(f"{self._operation} {seen.model}".strip())
        for name, value in (
            ("gen_ai.request.model", seen.model),
            ("semcache.status", seen.status),
            ("semcache.match", seen.match),
            ("semcache.similarity", seen.similarity),
            ("semcache.reason", seen.reason),
            ("semcache.entry_id", seen.entry_id),
            ("semcache.tokens_saved", seen.tokens or None),
        ):
            if value is not None:
                span.set_attribute(name, value)
        usage = (noted.response.usage if noted.response is not None else None) or {}
        for name, keys in (
            ("gen_ai.usage.input_tokens", ("prompt_tokens", "input_tokens")),
            ("gen_ai.usage.output_tokens", ("completion_tokens", "output_tokens")),
        ):
            found = next((usage[key] for key in keys if isinstance(usage.get(key), int)), None)
            if found is not None:
                span.set_attribute(name, found)


_NOTHING: Final = Span(None, "")


class Telemetry:
    """Makes spans.

    Args:
        tracer: An OpenTelemetry tracer; None for no telemetry.
    """

    def __init__(self, tracer: Any = None) -> None:
        self._tracer = tracer

    @contextmanager
    def call(self, endpoint: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """Span one call of a cached endpoint; a `traceparent` of the caller's is its parent."""
        if self._tracer is None:
            yield _NOTHING
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        operation = _OPERATIONS[endpoint]
        attributes = {"gen_ai.operation.name": operation, "gen_ai.provider.name": "openai"}
        parent = propagate.extract(dict(headers))
        with self._tracer.start_as_current_span(
            operation, context=parent, kind=SpanKind.SERVER, attributes=attributes
        ) as span:
            yield Span(span, operation)


def exporting_tracer() -> tuple[Any, Any]:
    """Return (tracer, provider) that send traces where `OTEL_EXPORTER_OTLP_ENDPOINT` says.

    Raises:
        MissingDependencyError: The extra isn't installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingDependencyError("otel = true", extra="otel") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "semcache"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("semcache"), provider
