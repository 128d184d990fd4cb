"""The layout of Redis keys: names only, no I/O.

Every key that belongs to one entry carries the hash tag ``{<id>}``, so that one entry's truth is one
slot of a cluster and one Lua script can change it.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from urllib.parse import quote

from semcache.errors import ConfigurationError
from semcache.scope import split_entry_id

_MAX_NAMESPACE = 200
_SLOTS = 16384


class Keys:
    """Key names of one namespace."""

    __slots__ = (
        "_name",
        "encoders",
        "gens",
        "hot",
        "log",
        "prefix",
        "queued",
        "refresh",
        "secret",
        "shadow",
        "versions",
        "withdrawn",
    )

    def __init__(self, namespace: str) -> None:
        if (
            not isinstance(namespace, str)
            or not 0 < len(namespace.encode("utf-8", "surrogatepass")) <= _MAX_NAMESPACE
        ):
            raise ConfigurationError(
                f"namespace is {namespace!r:.60}, expected 1 to {_MAX_NAMESPACE} bytes of text"
            )
        self._name = quote(namespace, safe="-._~")
        self.prefix = f"semcache:{self._name}:"
        self.hot = self.prefix + "hot"
        self.gens = self.prefix + "gens"
        self.log = self.prefix + "log"
        self.secret = self.prefix + "secret"
        self.refresh = self.prefix + "refresh"
        self.queued = f"{self.prefix}queued:{{{self.refresh}}}"  # in the queue's slot
        self.shadow = self.prefix + "shadow"
        self.versions = self.prefix + "versions"
        self.encoders = self.prefix + "encoders"
        self.withdrawn = self.prefix + "withdrawn"

    def entry(self, entry_id: str) -> str:
        """Key of the hash that is the entry."""
        model, version, id_ = entry_id.split("/")
        return f"{self.prefix}entry:{model}:{version}:{{{id_}}}"

    def entry_id(self, key: str) -> str:
        """Turn the key of an entry back into its id."""
        model, version, id_ = key.removeprefix(self.prefix + "entry:").split(":")
        return f"{model}/{version}/{id_.strip('{}')}"

    def beside(self, what: str, entry_id: str) -> str:
        """Key of something that lives beside an entry: downs, blocked, tomb."""
        return f"{self.prefix}{what}:{{{split_entry_id(entry_id)[2]}}}"

    def all_beside(self, what: Iterable[str], entry_id: str) -> list[str]:
        """Keys of several things that live beside an entry, whose name is known to be one."""
        end = f":{{{entry_id.rpartition('/')[2]}}}"
        return [self.prefix + one + end for one in what]

    def members(self, fingerprint: str, scope: str) -> str:
        """Key of the sorted set of a scope's entries."""
        return f"{self.prefix}members:{fingerprint}:{{{scope}}}"

    def embedding(self, fingerprint: str, digest: str) -> str:
        """Key of one embedding in the shared embedding cache."""
        return f"{self.prefix}embedding:{fingerprint}:{digest}"

    @lru_cache(maxsize=4096)  # noqa: B019 - one per namespace and process
    def copy(self, number: int, copies: int, entry_id: str) -> str:
        """Key of one of so many copies of an entry's response; each lies in a part of the slots of its own."""
        model, version, id_ = entry_id.split("/")
        for salt in count():
            key = f"{self.prefix}copy:{number}:{model}:{version}:{id_}:{salt}"
            if crc_hqx(key.encode(), 0) % _SLOTS * copies // _SLOTS == number:
                break
        return key

    def budget(self, part: str) -> str:
        """Key of a part of the namespace's budget; all parts lie in one slot."""
        return f"{self.prefix}budget:{{{self._name}}}:{part}"

    def limit(self, principal: str, bucket: int) -> str:
        """Key of what counts the verdicts of a principal, a digest, in one stretch of time."""
        return f"{self.prefix}limit:{principal}:{bucket}"

    def named(self, what: str, name: str) -> str:
        """Key of a lease, or of what is kept about an encoder."""
        return f"{self.prefix}{what}:{quote(name, safe='-._~')}"
