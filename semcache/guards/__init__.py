"""Typed guards: pure rules that object to serving one prompt's answer for another prompt.

`GUARDS` lists them in the order in which they are asked, cheap and precise ones first. Each takes a
`Comparison` and says ``pass``, ``refuse`` or ``not_applicable``.
"""

from __future__ import annotations

from typing import Final

from semcache.guards import (
    context,
    parts,
    polarity,
    quantifiers,
    quantities,
    roles,
    routes,
    substitutions,
    tenses,
    wording,
)
from semcache.guards.analysis import Analysis, analyse
from semcache.guards.comparison import Comparison, compare
from semcache.guards.normal import normal_form
from semcache.guards.verdict import Guard, Verdict

GUARDS: Final[tuple[tuple[str, Guard], ...]] = (
    ("language", wording.language),
    ("number", quantities.number),
    ("date", quantities.date),
    ("time", quantities.time),
    ("currency", quantities.currency),
    ("unit", quantities.unit),
    ("code", quantities.code),
    ("place", quantities.place),
    ("antonym", polarity.antonym),
    ("negation", polarity.negation),
    ("quantifier", quantifiers.quantifier),
    ("tense", tenses.tense),
    ("name", wording.name),
    ("quote", wording.quote),
    ("substitution", substitutions.substitution),
    ("direction", routes.direction),
    ("order", roles.order),
    ("subject", roles.subject),
    ("qualifier", wording.qualifier),
    ("question", wording.question),
    ("context", context.context),
    ("parts", parts.parts),
)

__all__ = ["GUARDS", "Analysis", "Comparison", "Guard", "Verdict", "analyse", "compare", "normal_form"]
