"""Which entries an invalidation means: read from what the caller said, before anything is asked of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from semcache import scope
from semcache.core.arguments import check_flag, check_seconds, entry_names
from semcache.decision import Clock, liveness
from semcache.errors import InvalidRequestError
from semcache.types import Entry


@dataclass(frozen=True, slots=True)
class Selection:
    """Entries by name, or generations to raise.

    Attributes:
        entry_ids: Names of entries; empty where generations are meant.
        bases: ``all``, ``model:…``, ``version:…``, ``segment:…`` or ``tag:…``.
        tenant: The one tenant that is meant; None for all.
        older_than: Only what was looked up for at least so many seconds ago; 0 for everything until now.
    """

    entry_ids: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    tenant: str | None = None
    older_than: float = 0.0

    @property
    def raised(self) -> tuple[str, ...]:
        """Names of the generations that the store raises."""
        return scope.raised_generations(self.bases, self.tenant)

    def reaches(self, entry: Entry, clock: Clock) -> bool:
        """Return whether this withdraws an entry that could be served until then.

        Args:
            clock: Knows the generations that the entry obeys.
        """
        if self.entry_ids:
            named = entry.entry_id in self.entry_ids
        elif entry.fence.time_us > clock.now_us - round(self.older_than * 1e6):
            return False
        else:
            named = not set(self.raised).isdisjoint(entry.obeys)
        return named and liveness(entry, clock, entry.obeys) is None


def select(
    *,
    entry_ids: Collection[str],
    tags: Collection[str],
    model: str | None,
    model_version: str | None,
    segment: Mapping[str, str] | None,
    subject: str | None,
    tenant: str | None,
    older_than: float | None,
    everything: bool,
    dry_run: bool,
) -> Selection:
    """Return what an invalidation means.

    Raises:
        InvalidRequestError: Nothing was named, two kinds of selector at once, or something that can't be meant.
    """
    check_flag("everything", everything)
    check_flag("dry_run", dry_run)
    check_seconds("older_than", older_than, none=True)
    if tenant is not None:
        scope.checked_name("tenant", tenant)
    names = tuple(dict.fromkeys(entry_names(entry_ids)))
    if names and (older_than is not None or tenant is not None):
        raise InvalidRequestError("entry_ids name entries; give neither older_than nor tenant with them")
    kinds = [
        tuple(f"tag:{tag}" for tag in scope.checked_tags(tags)),
        _models(model, model_version),
        _segments(segment),
        () if subject is None else ("tag:" + scope.checked_tag(f"subject:{_named('subject', subject)}"),),
        ("all",) if everything else (),
    ]
    found = [kind for kind in kinds if kind]
    if not found and not names and (tenant or older_than):
        found = [("all",)]
    if len(found) + bool(names) != 1:
        raise InvalidRequestError(_complaint(bool(found or names), tenant, older_than))
    return Selection(names, () if names else found[0], tenant, float(older_than or 0.0))


def _complaint(several: bool, tenant: str | None, older_than: float | None) -> str:
    if not several and (tenant is not None or older_than is not None):
        empty = "an empty tenant" if tenant is not None else "older_than=0"
        return (
            f"invalidate was given {empty} and nothing else, which is everything; say everything=True with it"
        )
    found = "several kinds of selector at once" if several else "nothing"
    return (
        f"invalidate was given {found}, expected one of entry_ids, tags, model (with model_version), segment, "
        "subject, tenant, older_than or everything=True"
    )


def _models(model: str | None, version: str | None) -> tuple[str, ...]:
    if model is None:
        if version is not None:
            raise InvalidRequestError("model_version without model; name the model too")
        return ()
    scope.checked_name("model", model)
    if version is not None:
        scope.checked_name("model_version", version)
    elif not model:
        raise InvalidRequestError(
            "model is empty: every entry whose request named none; give model_version too, or everything=True"
        )
    return (scope.model_generation(model, version),)


def _segments(segment: Mapping[str, str] | None) -> tuple[str, ...]:
    if segment is None:
        return ()
    if not isinstance(segment, Mapping):
        raise InvalidRequestError(f"segment is {segment!r:.60}, expected a mapping of texts to texts")
    for key, value in segment.items():
        scope.checked_name("a key of segment", key)
        if not isinstance(value, bool | int | float):
            scope.checked_name(f"segment[{key!r:.60}]", value)
    return tuple(scope.segment_generation(key, value) for key, value in segment.items())


def _named(what: str, value: object) -> str:
    name = scope.checked_name(what, value)
    if not name:
        raise InvalidRequestError(f"{what} is empty, expected a name")
    return name
