"""Settings of the service: what can be set, where it may come from, and what it may be.

A frozen dataclass, checked when it is made. `load_settings` reads a TOML file, then environment variables, then
options of the command line; the later wins. No other module of semcache reads the environment.
"""

from __future__ import annotations

import ipaddress
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from semcache.errors import ConfigurationError
from semcache.policy import Policy

ROLES: Final = ("use", "feedback", "feedback:trusted", "admin")
EVERY_TENANT: Final = "*"
PREFIX: Final = "SEMCACHE_"
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key of the service, by its digest.

    Attributes:
        name: The principal: who speaks when this key gives feedback.
        digest: HMAC-SHA256 of the key under `Settings.secret`, 64 hex digits; `semcache api-key` makes both.
        tenant: Whose entries it may use and judge; ``*`` for an operator, who sees every tenant's.
        roles: Any of ``use``, ``feedback``, ``feedback:trusted`` (speaks for raters, and by entry id), ``admin``.
    """

    name: str
    digest: str = field(repr=False)
    tenant: str
    roles: frozenset[str] = frozenset({"use", "feedback"})

    def __post_init__(self) -> None:
        if not self.name or not self.tenant:
            raise ConfigurationError("a key needs a name and a tenant")
        if len(self.digest) != 64 or any(c not in "0123456789abcdef" for c in self.digest):
            raise ConfigurationError(
                f"digest of key {self.name!r} isn't 64 hex digits; make one with `semcache api-key`"
            )
        unknown = self.roles - set(ROLES)
        if unknown:
            raise ConfigurationError(
                f"key {self.name!r} has roles {sorted(unknown)}, expected {', '.join(ROLES)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs, US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0

    def __post_init__(self) -> None:
        _numbers(self, ("input", "output"), least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the service runs.

    Attributes:
        upstream: Base URL as an SDK would be given it, e.g. ``https://api.openai.com/v1``; a URL without a path
            means its ``/v1``. Requests go nowhere else.
        upstream_key: Sent upstream as a bearer token in place of the caller's own; needed where `keys` are set.
        upstream_proxy: URL of an HTTP proxy on the way to upstream.
        redis: Where entries live; None for the embedded server.
        namespace: The deployment.
        data_dir: Folder of the embedded server.
        snapshot_dir: Folder in which the index is kept from one run to the next; None for the embedded server's own, and
            for none with another.
        host, port, workers: Where it listens, and in how many processes.
        secret: Hashes API keys; at least 16 characters. Needed where `keys` are set.
        keys: API keys. Without any, the upstream key's digest is the tenant, and the local user is the operator.
        trusted_networks: Addresses of hops whose `tenant_header` is believed.
        tenant_header: Header in which a trusted hop names the tenant; empty for none.
        hosts: Names under which a browser on this machine may reach the page while there are no keys.
        cors_origins: Origins whose pages may call ``/v1/feedback``.
        max_body_bytes: Largest body of a cached or API call.
        max_upload_bytes: Largest body that is passed through.
        header_timeout, body_timeout, write_timeout: Seconds that a client may take to send its headers, to send
            a body, to take the next bytes of an answer.
        connect_timeout, upstream_timeout: Seconds to connect to upstream, and to wait for its next bytes.
        drain_timeout: Seconds that answers under way may take after the service was told to stop.
        upstream_connections: Connections to upstream at once.
        feedback_rate: Verdicts per minute that one address may give without a key.
        public_metrics: Whether `/metrics` needs no role.
        annotate: Whether answers get a member ``semcache``.
        recent: Decisions that a process keeps for the page.
        prices: Model → what it costs, to say what hits have saved.
        otel: Whether traces are sent, by OpenTelemetry; needs the extra ``otel``.
        log_level, log_json: Logging of the service's process.
        policy: What may be served and stored.
    """

    upstream: str
    upstream_key: str | None = field(default=None, repr=False)
    upstream_proxy: str | None = field(default=None, repr=False)
    redis: str | None = field(default=None, repr=False)
    namespace: str = "default"
    data_dir: str | None = None
    snapshot_dir: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    secret: str | None = field(default=None, repr=False)
    keys: tuple[Key, ...] = ()
    trusted_networks: tuple[Network, ...] = ()
    tenant_header: str = ""
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 * 1024 * 1024
    max_upload_bytes: int = 512 * 1024 * 1024
    header_timeout: float = 15.0
    body_timeout: float = 120.0
    write_timeout: float = 60.0
    connect_timeout: float = 10.0
    upstream_timeout: float = 600.0
    drain_timeout: float = 60.0
    upstream_connections: int = 1000
    feedback_rate: int = 60
    annotate: bool = False
    public_metrics: bool = False
    recent: int = 200
    prices: Mapping[str, Price] = field(default_factory=dict)
    otel: bool = False
    log_level: str = "info"
    log_json: bool = False
    policy: Policy = Policy()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        _check_upstream(self.upstream)
        _numbers(
            self,
            ("header_timeout", "body_timeout", "write_timeout", "connect_timeout", "upstream_timeout"),
            least=0.001,
        )
        _numbers(self, ("drain_timeout",), least=0.0)
        _whole(
            self,
            ("workers", "max_body_bytes", "max_upload_bytes", "upstream_connections", "feedback_rate"),
            1,
        )
        _whole(self, ("port", "recent"), 0)
        if self.keys and (self.secret is None or len(self.secret) < 16):
            raise ConfigurationError("keys need a secret of 16 characters or more (SEMCACHE_SECRET)")
        for what, values in (
            ("name", [k.name for k in self.keys]),
            ("digest", [k.digest for k in self.keys]),
        ):
            if len(set(values)) != len(values):
                raise ConfigurationError(f"two keys have the same {what}, expected each to have its own")
        if bool(self.tenant_header) != bool(self.trusted_networks):
            raise ConfigurationError(
                "tenant_header and trusted_networks need each other; set both or neither"
            )
        if self.redis is not None and self.data_dir is not None:
            raise ConfigurationError("data_dir is for the embedded server; set it or redis, not both")
        if self.workers > 1 and (self.redis or "").startswith("memory:"):
            raise ConfigurationError("memory:// lives in one process; use it with one worker only")

    @property
    def base(self) -> str:
        """The upstream URL to which the rest of a path is appended, without a slash at its end."""
        url = self.upstream.rstrip("/")
        return url if urlsplit(url).path else url + "/v1"


def load_settings(
    file: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Settings:
    """Read settings: the file, then the environment, then `options` that aren't None.

    Args:
        file: TOML with the names of `Settings`; keys as ``[[keys]]``, prices as ``[prices."<model>"]``, the policy
            as ``[policy]``.
        environment: Normally `os.environ`; ``SEMCACHE_UPSTREAM``, ``SEMCACHE_SECRET`` and so on.

    Raises:
        ConfigurationError: The file can't be read, or a value can't be meant.
    """
    values = {} if file is None else _read_file(file)
    values |= _from_environment(os.environ if environment is None else environment)
    values |= {name: value for name, value in options.items() if value is not None}
    return _settings(values)


_PLAIN: Final = frozenset(field.name for field in fields(Settings)) - {"keys", "prices", "policy"}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    kinds = {item.name: str(item.type) for item in fields(Settings)}
    found: dict[str, Any] = {}
    for name in sorted(_PLAIN):
        text = environment.get(PREFIX + name.upper())
        if text is not None:
            found[name] = _read(PREFIX + name.upper(), text, kinds[name])
    return found


def _read(name: str, text: str, kind: str) -> Any:
    if kind.startswith("tuple"):
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind == "bool":
        if text.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            raise ConfigurationError(f"{name} is {text!r}, expected true or false")
        return text.lower() in ("1", "true", "yes", "on")
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError as error:
            raise ConfigurationError(f"{name} is {text!r}, expected a number") from error
    return text


def _settings(values: dict[str, Any]) -> Settings:
    known = {item.name: str(item.type) for item in fields(Settings)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigurationError(
            f"unknown setting {', '.join(unknown)}, expected one of {', '.join(sorted(known))}"
        )
    if "upstream" not in values:
        raise ConfigurationError("no upstream; give --upstream URL or set SEMCACHE_UPSTREAM")
    made = dict(values)
    for name, kind in known.items():
        if name in made and name not in ("keys", "prices", "policy", "trusted_networks"):
            made[name] = _typed(name, made[name], kind)
    made["keys"] = tuple(_key(item) for item in values.get("keys", ()))
    made["trusted_networks"] = tuple(_network(text) for text in values.get("trusted_networks", ()))
    prices = values.get("prices", {})
    made["prices"] = {str(model): _made(f"prices.{model}", Price, price) for model, price in prices.items()}
    policy = values.get("policy", {})
    made["policy"] = policy if isinstance(policy, Policy) else _made("policy", Policy, policy)
    return Settings(**made)


def _typed(name: str, value: Any, kind: str) -> Any:
    if kind.startswith("tuple"):
        if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
            raise ConfigurationError(f"{name} is {value!r:.80}, expected a list of texts")
        return tuple(value)
    wanted: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
    if value is None and "None" in kind:
        return None
    types = wanted.get(kind, (str, os.PathLike))
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigurationError(f"{name} is {type(value).__name__}, expected {kind}")
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _key(item: Any) -> Key:
    if isinstance(item, Key):
        return item
    if not isinstance(item, dict):
        raise ConfigurationError(f"a key is {type(item).__name__}, expected a table [[keys]]")
    roles = item.get("roles", ["use", "feedback"])
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise ConfigurationError(f"roles of key {item.get('name')!r} aren't a list of texts")
    made = _made("keys", Key, {**item, "roles": frozenset(roles)})
    assert isinstance(made, Key)
    return made


def _network(value: Any) -> Network:
    if isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
        return value
    try:
        return ipaddress.ip_network(value)
    except ValueError as error:
        raise ConfigurationError(f"trusted_networks holds {value!r}, expected e.g. 10.0.0.0/8") from error


def _made(name: str, kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{name} is {type(value).__name__}, expected a table")
    known = {item.name for item in fields(kind)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise ConfigurationError(
            f"{name} has {', '.join(unknown)}, expected some of {', '.join(sorted(known))}"
        )
    try:
        return kind(**value)
    except TypeError as error:
        raise ConfigurationError(f"{name}: {error}") from error


def _check_upstream(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
        parts = urlsplit("")
    if not good or parts.query or parts.fragment or parts.username or parts.password:
        raise ConfigurationError(
            "upstream isn't http(s)://host[:port][/path] without credentials, query or fragment"
        )


def _numbers(owner: Any, names: tuple[str, ...], *, least: float) -> None:
    for name in names:
        value = getattr(owner, name)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or value < least:
            raise ConfigurationError(f"{name} is {value!r}, expected a number of {least:g} or more")


def _whole(owner: Any, names: tuple[str, ...], least: int) -> None:
    for name in names:
        value = getattr(owner, name)
        if type(value) is not int or value < least:
            raise ConfigurationError(f"{name} is {value!r}, expected a whole number of {least} or more")


def load_secret(
    file: str | os.PathLike[str] | None, *, environment: Mapping[str, str] | None = None
) -> str | None:
    """Return the secret that hashes API keys, as `load_settings` finds it; None without one."""
    found = (os.environ if environment is None else environment).get(PREFIX + "SECRET")
    return found if found is not None or file is None else _read_file(file).get("secret")


def _read_file(file: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"configuration {os.fspath(file)} can't be read: {error}") from error
