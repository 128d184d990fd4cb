"""Who calls: from credentials and addresses to a tenant and roles. Knows no route.

A tenant never comes from a body, and from a header only behind a trusted hop. Credentials are neither kept nor
logged: what is remembered are digests.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from semcache.errors import StoreUnavailableError
from semcache.server.errors import HttpError
from semcache.server.settings import EVERY_TENANT, ROLES, Settings

CREDENTIALS: Final = ("authorization", "api-key", "x-api-key")
_FORWARDED: Final = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
    "via",
    "cf-connecting-ip",
)
_REMEMBERED: Final = 10_000
_ALL: Final = frozenset(ROLES)
_BASIC: Final = frozenset({"use", "feedback"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    Attributes:
        principal: Whose voice it is when it judges.
        tenant: Whose entries it uses.
        roles: What it may do, of `settings.ROLES`.
        everywhere: Whether it is an operator, who sees the entries of every tenant.
        anonymous: Whether it showed nothing that says who it is.
        address: Where it calls from; for limits only.
    """

    principal: str
    tenant: str
    roles: frozenset[str]
    everywhere: bool = False
    anonymous: bool = False
    address: str = ""

    @property
    def view(self) -> str | None:
        """The tenant to which everything it sees or changes is narrowed; None for no narrowing."""
        return None if self.everywhere else self.tenant

    @property
    def trusted(self) -> bool:
        """Whether it speaks for raters, and may judge by entry id."""
        return "feedback:trusted" in self.roles

    def rater(self, given: str | None) -> str:
        """Return the name under which its verdict counts."""
        return f"{self.principal}/{given}" if given is not None and self.trusted else self.principal

    def need(self, *roles: str) -> None:
        """Raise unless it has one of these roles.

        Raises:
            HttpError: 401 for somebody unknown, 403 for somebody known.
        """
        if not self.roles.isdisjoint(roles):
            return
        if self.anonymous:
            raise HttpError(
                401, "no API key; send it as `Authorization: Bearer …`", "missing_api_key",
                headers=(("www-authenticate", "Bearer"),),
            )  # fmt: skip
        raise HttpError(403, f"this needs the role {' or '.join(roles)}", "missing_role")


def key_digest(secret: str, key: str) -> str:
    """Return the digest under which an API key is configured."""
    return hmac.digest(secret.encode(), key.encode("utf-8", "surrogateescape"), "sha256").hex()


def presented(headers: Mapping[str, str]) -> str | None:
    """Return the API key that a request shows, None without one."""
    authorization = headers.get("authorization", "")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("api-key") or headers.get("x-api-key") or (authorization or None)


class Identity:
    """Finds out who calls.

    Args:
        pseudonym: Gives a keyed digest that is the same in every process of the deployment.
    """

    def __init__(self, settings: Settings, pseudonym: Callable[[str], Awaitable[str]]) -> None:
        self._settings = settings
        self._pseudonym = pseudonym
        self._keys = {key.digest: key for key in settings.keys}
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._alone = os.urandom(32)

    @property
    def replaces_credentials(self) -> bool:
        """Whether callers' credentials are ours, so that they don't go upstream."""
        return bool(self._keys)

    async def caller(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> Caller:
        """Return who sends a request.

        Args:
            headers: Names in lower case.

        Raises:
            HttpError: 401 for a key that isn't known, 400 for a tenant that can't be one.
        """
        client = scope.get("client")
        address = client[0] if client else ""
        caller = self._by_key(headers) if self._keys else await self._by_credentials(scope, headers)
        tenant = self._from_hop(address, headers)
        if tenant is not None:
            caller = replace(caller, tenant=tenant, everywhere=False)
        return replace(caller, address=address)

    def _by_key(self, headers: Mapping[str, str]) -> Caller:
        shown = presented(headers)
        if shown is None:
            return Caller("browser", "", frozenset(), anonymous=True)
        digest = key_digest(self._settings.secret or "", shown)
        key = self._keys.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise HttpError(
                401, "unknown API key", "invalid_api_key", headers=(("www-authenticate", "Bearer"),)
            )
        everywhere = key.tenant == EVERY_TENANT
        return Caller(f"key:{key.name}", "" if everywhere else key.tenant, key.roles, everywhere)

    async def _by_credentials(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> Caller:
        shown = "\n".join(f"{name}:{headers[name]}" for name in CREDENTIALS if headers.get(name))
        if shown:
            tenant = "key:" + await self._tenant_of(shown)
            return Caller(tenant, tenant, _BASIC)
        if self.is_local(scope, headers):
            return Caller("local", "", _ALL, everywhere=True)
        return Caller("nobody", "", _BASIC, anonymous=True)

    async def _tenant_of(self, credentials: str) -> str:
        data = credentials.encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(data, digest_size=16, key=self._alone).digest()
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            return known
        try:
            tenant = await self._pseudonym(data.hex())
        except (StoreUnavailableError, TimeoutError):
            # Nothing can be read or stored now; the name only keeps callers apart who ask the same at once.
            return hmac.digest(self._alone, data, "sha256").hex()
        self._known[digest] = tenant
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return tenant

    def _from_hop(self, address: str, headers: Mapping[str, str]) -> str | None:
        """Return the tenant that a trusted hop names."""
        name = self._settings.tenant_header.lower()
        given = headers.get(name) if name else None
        if given is None or not _in_networks(address, self._settings.trusted_networks):
            return None
        if not 0 < len(given) <= 256 or not given.isprintable() or given == EVERY_TENANT:
            raise HttpError(400, f"{name} isn't a tenant, expected 1 to 256 printable characters", "tenant")
        return given

    def is_local(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
        """Return whether a person on this machine sends this, and no page of somebody else's does in her browser."""
        client = scope.get("client")
        if client is not None and not _is_loopback(client[0]):
            return False
        if any(name in headers for name in _FORWARDED):
            return False
        if self._settings.tenant_header and self._settings.tenant_header.lower() in headers:
            return False
        host = headers.get("host", "")
        if _host_name(host) not in self._settings.hosts:
            return False  # a name that was made to point here (DNS rebinding)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return False
        return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _host_name(host: str) -> str:
    try:
        return (urlsplit("//" + host).hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def _in_networks(address: str, networks: Any) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)
