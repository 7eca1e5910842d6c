"""The twin of cpp/src/turns.cpp: collecting neighbour turns, and what turns and sessions add."""

from __future__ import annotations


def collect(lists, previous, following, mask, reach):
    """(ordinals, chosen, previous, next): the union of the lists with the turns around, and places in it."""
    union = sorted({row for rows in lists for row in rows})
    collected = set(union)
    for _ in range(reach):
        around = {row for own in collected for row in (previous[own], following[own])}
        collected |= {row for row in around if 0 <= row < len(mask) and mask[row]}
    ordinals = sorted(collected)
    place = {row: at for at, row in enumerate(ordinals)}
    return (
        ordinals,
        [place[row] for row in union],
        [place.get(previous[row], -1) for row in ordinals],
        [place.get(following[row], -1) for row in ordinals],
    )


def turn_terms(pool, base, tokens, asks, has_role, weights, gate):
    """weights: previous, next, second previous, second next, answer, role next."""
    ordinals, chosen, previous, following = pool
    w = weights

    def score(place):
        return base[place] if place >= 0 else 0.0

    def step(links, place):
        return links[place] if place >= 0 else -1

    out = []
    for place in chosen:
        row = ordinals[place]
        before, after = previous[place], following[place]
        if has_role[row]:
            term = w[5] * score(after)
        else:
            term = w[0] * score(before)
            term += w[1] * score(after)
            term += w[2] * score(step(previous, before))
            term += w[3] * score(step(following, after))
            term += w[4] * score(before) if before >= 0 and asks[ordinals[before]] else 0.0
        out.append(min(1.0, gate / max(tokens[row], 1)) * term)
    return out


def session_terms(pool, base, sessions, weight, top):
    ordinals, chosen, _, _ = pool
    values = {}
    for place in chosen:
        values.setdefault(sessions[ordinals[place]], []).append(max(base[place], 0.0))
    out = []
    for place in chosen:
        session = sessions[ordinals[place]]
        total = 0.0
        for value in sorted(values[session], reverse=True)[:top]:
            total += value
        out.append(weight * (total / top) if session >= 0 else 0.0)
    return out
