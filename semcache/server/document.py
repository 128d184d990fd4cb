"""The OpenAPI document: FastAPI's, with our error shape and the endpoints that the proxy answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openai_semcache.controls import PREFIX

if TYPE_CHECKING:
    from fastapi import FastAPI

_CONTROLS = (
    (
        "cache-control",
        "`no-cache`, `no-store`, `max-age=…`, `only-if-cached` as in RFC 9111.",
        "max-age=3600",
    ),
    (PREFIX + "mode", "`semantic`, `exact` or `off`.", "exact"),
    (PREFIX + "ttl", "Seconds that the new entry lives.", "600"),
    (PREFIX + "threshold", "Least cosine similarity, in [-1, 1]; may only tighten.", "0.92"),
    (PREFIX + "scope", "One more thing that must match exactly.", "help-desk"),
    (PREFIX + "tags", "Tags of the new entry, separated by commas.", "help:account"),
)
_SAID = (
    ("status", "`hit`, `miss`, `bypass`, `refresh` or `error`."),
    ("match", "`exact` or `semantic`."),
    ("similarity", "Cosine similarity of a hit."),
    ("reason", "Why it wasn't a hit."),
    ("stored", "What became of a new answer."),
    ("entry-id", "The entry that was served or stored."),
    ("lookup-id", "Names this serving, for feedback."),
)
_EXAMPLES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": (
        "Chat completion, through the cache",
        "messages",
        {"type": "array", "items": {"type": "object"}},
        {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "How do I reset my password?"}]},
    ),
    "/v1/responses": (
        "Response, through the cache",
        "input",
        {},
        {"model": "gpt-4o-mini", "input": "How do I reset my password?", "store": False},
    ),
    "/v1/completions": (
        "Completion, through the cache",
        "prompt",
        {},
        {"model": "gpt-3.5-turbo-instruct", "prompt": "Say hello"},
    ),
    "/v1/embeddings": (
        "Embeddings, through the cache",
        "input",
        {},
        {"model": "text-embedding-3-small", "input": ["hello"]},
    ),
}


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the document, made once."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    from fastapi.openapi.utils import get_openapi

    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # ours is a 400
            operation["security"] = [{"key": []}, {}]
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    put = document["paths"]["/v1/cache/entries"]["post"]["responses"]
    put["201"] = {**put["200"], "description": "Stored."}
    put["200"]["description"] = "Not stored; `reason` says why."
    ready = document["paths"]["/readyz"]["get"]["responses"]
    ready["503"] = {**ready["200"], "description": "Draining, or `strict` and the store is away."}
    document["paths"] |= {path: {"post": _proxied(path)} for path in _EXAMPLES}
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    app.openapi_schema = document
    return document


def _proxied(path: str) -> dict[str, Any]:
    summary, texts, kind, example = _EXAMPLES[path]
    error = {"$ref": "#/components/schemas/ErrorAnswer"}
    headers = {PREFIX + name: {"description": text, "schema": {"type": "string"}} for name, text in _SAID}
    return {
        "tags": ["proxy"],
        "summary": summary,
        "operationId": "proxy" + path.replace("/", "_"),
        "parameters": [
            {"name": name, "in": "header", "required": False, "description": text, "example": sample,
             "schema": {"type": "string"}}
            for name, text, sample in _CONTROLS
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"model": {"type": "string"}, texts: kind},
                        "required": ["model", texts],
                    },
                    "example": example,
                }
            },
        },
        "responses": {
            "200": {"description": "Upstream's answer, or a stored one.", "headers": headers,
                    "content": {"application/json": {"schema": {}}, "text/event-stream": {"schema": {}}}},
            "default": {"description": "Upstream's error, or one of the proxy's.",
                        "content": {"application/json": {"schema": error}}},
        },
        "security": [{"key": []}, {}],
    }  # fmt: skip
