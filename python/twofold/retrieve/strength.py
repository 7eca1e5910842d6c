"""How strong memories are at a moment: which have faded, and by how much use and time lift or lower the rest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from twofold import _core, decay
from twofold.clock import DAY
from twofold.index.tenant import TenantIndex, View
from twofold.retrieve.candidates import Mask, Scores


def faded_rows(
    policy: decay.DecayPolicy, index: TenantIndex, view: View, mask: Mask, now: int
) -> npt.NDArray[np.int64]:
    """Ordinals in `mask` whose strength at `now` is below the policy's threshold; pinned rows never are."""
    if policy.threshold <= 0.0:
        return np.zeros(0, np.int64)
    table = rate_table(policy, view)
    rates = table[:, 0] + table[:, 1] if len(table) else np.zeros(1)
    # Boosts only add, and idle time is at most the age: a row younger than this cannot have faded. Rows are
    # in the order they were recorded in, so the fastest rate bounds how many there are to look at.
    least = -np.log(policy.threshold) - 0.01
    fastest = float(rates.max())
    if fastest <= 0.0:
        return np.zeros(0, np.int64)
    recorded = index.recorded.view(view.rows)
    n = int(np.searchsorted(recorded, now - int(least / fastest * DAY), "right"))
    if n == 0:
        return np.zeros(0, np.int64)
    old = (now - recorded[:n]) / DAY * rates[index.type.view(n)] >= least
    rows = np.flatnonzero(mask[:n] & old & ~index.pinned.view(n))
    if len(rows) == 0:
        return rows
    weak = strength_of(policy, index, view, rows, now) < policy.threshold
    return rows[weak]


def strength_of(
    policy: decay.DecayPolicy, index: TenantIndex, view: View, ordinals: npt.NDArray[np.int64], now: int
) -> Scores:
    """Strength of rows at `now` by the core's decay; the keep rule lifts what was used often; float64 (n,)."""
    if len(ordinals) == 0:
        return np.zeros(0, np.float64)
    count, last, recent = view.accesses(now)
    lineage = index.lineage.view(view.rows)
    out: Scores = _core.strength_rows(
        ordinals,
        lineage,
        index.type.view(view.rows),
        index.recorded.view(view.rows),
        count,
        last,
        recent,
        rate_table(policy, view),
        now=now,
        day=DAY,
    )
    if policy.keep_after is not None:
        kept = count[lineage[ordinals]] >= policy.keep_after
        out = np.where(kept, np.maximum(out, policy.threshold), out)
    return out


def rate_table(policy: decay.DecayPolicy, view: View) -> npt.NDArray[np.float64]:
    """The policy's rates by code of the memory type, in the order of `DecayRates`; float64 (types, 5)."""
    kept = view.rates
    if kept is None or kept[0] is not policy or len(kept[1]) != len(view.index.types):
        rates = [policy.rates(t) for t in view.index.types.names]
        table = np.array(
            [[r.age_rate, r.idle_rate, r.access_boost, r.access_cap, r.recent_boost] for r in rates]
        ).reshape(-1, 5)
        view.rates = kept = (policy, table)
    return kept[1]
