"""The commands `semcache serve` and `semcache api-key`."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from semcache.errors import ConfigurationError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)
    app.command("api-key")(api_key)


def serve(
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="OpenAI-compatible endpoint, e.g. https://api.openai.com/v1."),
    ] = None,
    redis: Annotated[
        str | None, typer.Option(metavar="URL", help="redis://…; without it the embedded server.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help="The deployment.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Data folder of the embedded server.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen; 127.0.0.1 by default.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="8080 by default.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML; read again at SIGHUP.")] = None,
) -> None:
    """Run the HTTP service: a caching proxy, the cache's API, feedback, metrics, and a page at /."""
    from semcache.server.run import run
    from semcache.server.settings import load_settings

    options: dict[str, Any] = {
        "upstream": upstream, "redis": redis, "namespace": namespace,
        "data_dir": None if data_dir is None else str(data_dir), "host": host, "port": port, "workers": workers,
    }  # fmt: skip
    settings = load_settings(config, **options)
    if settings.host not in ("127.0.0.1", "::1", "localhost") and not settings.keys:
        typer.echo(
            f"semcache: listening on {settings.host} without API keys: whoever reaches it can use it with "
            "credentials of their own for upstream",
            err=True,
        )
    run(settings, read=lambda: load_settings(config, **options), source=(config, options))


def api_key(
    name: Annotated[str, typer.Argument(help="Who the key is for.")],
    tenant: Annotated[str, typer.Option(help="Whose entries it may use; * for an operator.")],
    role: Annotated[
        list[str] | None, typer.Option(help="use, feedback, feedback:trusted, admin; several times.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the secret is, if not in SEMCACHE_SECRET.")
    ] = None,
) -> None:
    """Make an API key: prints it once, and the lines for the configuration, which hold its digest only."""
    from semcache.server.identity import key_digest
    from semcache.server.settings import Key, load_secret

    secret = load_secret(config)
    if secret is None:
        raise ConfigurationError("no secret; set SEMCACHE_SECRET or `secret` in the configuration")
    key = "sc-" + secrets.token_urlsafe(32)
    roles = role or ["use", "feedback"]
    made = Key(name=name, digest=key_digest(secret, key), tenant=tenant, roles=frozenset(roles))
    typer.echo(f"# {key}", err=True)
    values = {"name": made.name, "digest": made.digest, "tenant": made.tenant, "roles": roles}
    typer.echo("\n".join(["[[keys]]", *(f"{k} = {json.dumps(v)}" for k, v in values.items())]))
