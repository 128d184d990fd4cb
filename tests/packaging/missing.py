"""Run without extras: asks for each and prints the extra that the error names."""

from pathlib import Path

from semcache import MissingDependencyError
from semcache.encoders.openai import OpenAIEncoder
from semcache.encoders.sentence_transformers import SentenceTransformerEncoder


def serve() -> None:
    from semcache.server.run import run
    from semcache.server.settings import Settings

    run(Settings(upstream="http://127.0.0.1:9/v1"))


def langchain() -> None:
    import langchain_semcache  # noqa: F401


def trace() -> None:
    from semcache.server.telemetry import exporting_tracer

    exporting_tracer()


def plot() -> None:
    from semcache.cli_evaluate import _plot

    _plot({}, Path("curve.png"))


for name, use in {
    "st": lambda: SentenceTransformerEncoder("a model"),
    "langchain": langchain,
    "openai": lambda: OpenAIEncoder("http://127.0.0.1:9/v1", "m"),
    "otel": trace,
    "plots": plot,
    "server": serve,
}.items():
    try:
        use()
    except MissingDependencyError as error:
        print(name if f"[{name}]" in str(error) else error)
