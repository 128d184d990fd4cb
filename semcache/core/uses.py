"""What was served: for the budget's accounts, and to know what is hot, here and in all processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from semcache.core.state import State
from semcache.hotkeys import HotKey, decode_reports, encode_report, merged
from semcache.steps import Steps
from semcache.worth import Worth, as_counts, cost_of

MAX_UNTOLD = 10_000
REPORT_EVERY = 5.0  # seconds between two reports of what is hot


class Uses(State):
    """Steps and state of counting uses."""

    def take_uses(self) -> list[tuple[str, int]]:
        """Count what was served since the last call; returns what the budget's accounts don't know yet."""
        self.count_uses()
        with self.lock:
            told, self.untold = self.untold, []
        return told

    def count_uses(self) -> None:
        """Bring the sketch of hot entries up to date, and what was saved."""
        policy = self.policy
        with self.lock:
            used = self.usage.take()
            tokens, ms, usd = self.saved
            for one in used:
                each = cost_of(one.response, policy.usd_in, policy.usd_out)
                tokens += each[0] * one.uses
                ms += each[1] * one.uses
                usd += each[2] * one.uses
            self.saved = (tokens, ms, usd)
            uses = [(one.entry_id, one.uses) for one in used]
            if policy.hot_keys:
                self.hot.add(uses, self.clock())
            if self.budget is not None:
                self.untold = [*self.untold, *uses][-MAX_UNTOLD:]

    def note_uses(self) -> Steps[None]:
        """Tell the store which entries were served: for the budget's accounts, and what is hot in all processes."""
        uses = self.take_uses()
        if uses and self.budget is not None:
            yield self._ask("note_uses", uses, self.budget, timeout=1.0)
        policy = self.policy
        if policy.hot_keys and self.clock() - self.told_hot >= REPORT_EVERY:
            self.told_hot = self.clock()
            with self.lock:
                mine = self.hot.top(policy.hot_keys, self.clock())
            counts = as_counts(self.worth())
            if not mine and not counts and not self.local.pinned:
                return
            report = encode_report(mine, self.server_now(), counts)
            reports = yield self._ask("report_hot", self.holder, report, timeout=1.0)
            self.learn_hot(mine, reports)

    def worth(self) -> Worth:
        """Return what serving was worth, in this process."""
        metrics = self.metrics
        hits, misses = metrics.counts("hits"), metrics.counts("misses")
        verdicts, watched = metrics.counts("verdicts"), metrics.counts("shadow").get("misses", 0)
        tokens, saved_ms, usd = self.saved
        served = sum(hits.values())
        missed = sum(n for reason, n in misses.items() if not reason.startswith("bypass:")) - watched
        means = metrics.means()
        local = metrics.counts("tiers").get("local", 0)
        by_what = {"local": local, "exact": hits.get("exact", 0) - local, "semantic": hits.get("semantic", 0)}
        calls = metrics.counts("calls").get("model", 0)
        return Worth(
            hits=served,
            attempted=served + max(0, missed),
            stale=sum(metrics.counts("stale").values()),
            right=verdicts.get("right", 0),
            wrong=verdicts.get("wrong", 0),
            hit_ms=sum(number * means.get(f"{what} hit", 0.0) for what, number in by_what.items()),
            miss_ms=max(0, missed) * means.get("miss", 0.0),
            calls=calls,
            model_ms=calls * means.get("model", 0.0),
            tokens=tokens,
            saved_ms=saved_ms,
            usd=usd,
        )

    def learn_hot(self, mine: Sequence[HotKey], reports: Mapping[str, str]) -> list[HotKey]:
        """Take over what is hot in all processes: it is pinned here, and read from copies where there are any."""
        others = decode_reports(reports, self.server_now())
        others.pop(self.holder, None)
        found = merged([mine, *others.values()], self.policy.hot_keys)
        hot = frozenset(key.entry_id for key in found if key.per_second >= self.policy.hot_rate)
        self.local.pinned = hot
        self.copied = hot if self.policy.hot_copies else frozenset()
        return found

    def hottest(self, reports: Mapping[str, str]) -> list[HotKey]:
        """Return what is hot, in this process and in those that have reported."""
        self.count_uses()
        with self.lock:
            mine = self.hot.top(self.policy.hot_keys, self.clock())
        return self.learn_hot(mine, reports)
