"""The cache without its waiting: what is asked of the store, the encoder and the model, in which order.

`SemanticCache` and `AsyncSemanticCache` perform the steps that this yields. What may be served is
decided by pure functions elsewhere (`decision`, `admission`, `guards`, `verify`); these modules gather
what they need, within one time limit, and fail open.
"""

from __future__ import annotations

from semcache.core.flying import Flying
from semcache.core.withdrawals import Withdrawals


class Core(Flying, Withdrawals):
    """State and steps that both caches share."""
