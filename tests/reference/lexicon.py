"""The slow, obvious twin of BM25: every document is looked at for every query."""

from collections.abc import Sequence

from tests.reference.arithmetic import log
from tests.reference.fuse import ranked


class Lexicon:
    """Documents as dicts of term id to count; None once erased."""

    def __init__(self) -> None:
        self.documents: list[dict[int, float] | None] = []

    def add(self, document: dict[int, float]) -> None:
        """Append one document."""
        self.documents.append(dict(document))

    def erase(self, ordinals: Sequence[int]) -> None:
        """Forget documents; their ordinals stay taken."""
        for ordinal in ordinals:
            self.documents[ordinal] = None

    def length(self, ordinal: int) -> float:
        """Return the length of a document; counts are rounded to 2**-16, so the sum is exact."""
        document = self.documents[ordinal] or {}
        return sum(round(count * 65536) for count in document.values()) / 65536

    def counted(self, stats_mask: Sequence[bool] | None, prefix: int | None) -> list[int]:
        """Return the documents that count for statistics."""
        end = len(self.documents) if prefix is None else min(prefix, len(self.documents))
        return [
            d
            for d in range(end)
            if self.documents[d] is not None
            and (stats_mask is None or (d < len(stats_mask) and stats_mask[d]))
        ]

    def document_frequency(self, term: int, stats_mask: Sequence[bool] | None, prefix: int | None) -> int:
        """Return how many counted documents hold the term."""
        return sum(term in (self.documents[d] or {}) for d in self.counted(stats_mask, prefix))

    def statistics(self, stats_mask: Sequence[bool] | None, prefix: int | None) -> tuple[int, float]:
        """Return the number of counted documents and their mean length."""
        counted = self.counted(stats_mask, prefix)
        units = sum(round(self.length(d) * 65536) for d in counted)
        return len(counted), units * 2.0**-16 / len(counted) if counted else 0.0

    def score(
        self,
        ordinal: int,
        terms: Sequence[int],
        *,
        weights: Sequence[float] | None = None,
        mask: Sequence[bool] | None = None,
        stats_mask: Sequence[bool] | None = None,
        prefix: int | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        doc_count: float | None = None,
        mean_length: float | None = None,
        longest: float | None = None,
    ) -> float:
        """Return the BM25 score of one document, its terms summed in the order given."""
        document = self.documents[ordinal]
        if document is None or (prefix is not None and ordinal >= prefix):
            return 0.0
        if mask is not None and not (ordinal < len(mask) and mask[ordinal]):
            return 0.0
        count, mean = self.statistics(stats_mask, prefix)
        total = float(count) if doc_count is None else doc_count
        mean = mean if mean_length is None else mean_length
        slope = k1 * b / mean if mean > 0 else 0.0
        limit = float("inf") if longest is None else longest * mean
        score = 0.0
        for position, term in enumerate(terms):
            if term in document:
                df = min(float(self.document_frequency(term, stats_mask, prefix)), total)
                idf = log(1.0 + (total - df + 0.5) / (df + 0.5))
                gain = (1.0 if weights is None else weights[position]) * idf * (k1 + 1.0)
                tf = document[term]
                score += gain * tf / (tf + (k1 * (1.0 - b) + slope * min(self.length(ordinal), limit)))
        return score

    def group_lengths(
        self,
        groups: Sequence[int],
        count: int,
        *,
        stats_mask: Sequence[bool] | None = None,
        prefix: int | None = None,
    ) -> list[float]:
        """Return the length of every group of documents."""
        counted = [d for d in self.counted(stats_mask, prefix) if d < len(groups)]
        return [sum(self.length(d) for d in counted if groups[d] == group) for group in range(count)]

    def group_scores(
        self,
        terms: Sequence[int],
        groups: Sequence[int],
        lengths: Sequence[float],
        *,
        stats_mask: Sequence[bool] | None = None,
        prefix: int | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        longest: float | None = None,
    ) -> list[float]:
        """Return BM25 of every group, its documents read as one."""
        counted = [d for d in self.counted(stats_mask, prefix) if d < len(groups)]
        living = sum(length > 0 for length in lengths)
        mean = sum(lengths) / living if living else 0.0
        out = [0.0] * len(lengths)
        for term in terms if living else ():
            held: dict[int, float] = {}
            for d in counted:
                if groups[d] >= 0 and term in (self.documents[d] or {}):
                    held[groups[d]] = held.get(groups[d], 0.0) + self.documents[d][term]
            df = min(len(held), living)
            gain = log(1.0 + (living - df + 0.5) / (df + 0.5)) * (k1 + 1.0)
            for group, tf in held.items():
                size = min(lengths[group], float("inf") if longest is None else longest * mean) / mean
                out[group] += gain * tf / (tf + k1 * (1.0 - b + b * size))
        return out

    def search(self, terms: Sequence[int], k: int, **options: object) -> list[tuple[int, float]]:
        """Return the best k documents with a score above 0."""
        scores = {d: self.score(d, terms, **options) for d in range(len(self.documents))}  # type: ignore[arg-type]
        return ranked({d: score for d, score in scores.items() if score > 0})[:k]
