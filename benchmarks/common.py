"""What every benchmark shares: made-up memories, embedders that cost nothing, clean samples, the machine's name."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent
ROOT = HERE.parent
SCALE = float(os.environ.get("BENCH_SCALE", "1"))
PUBLISHED_ROWS = 14_726
ROWS = max(200, int(PUBLISHED_ROWS * SCALE))
"""Memories in a store: the published design's number, times BENCH_SCALE."""

Floats = npt.NDArray[np.float32]

# -- made-up memories ------------------------------------------------------------------------------------

_ONSETS = "b br c d dr f g gl h k l m n p pl r s st t tr v w".split()
_VOWELS = "a e i o u ai ou".split()
_CODAS = "n r l s t m nd st ck sh".split()
VOCABULARY = 20_000
NAMES = 400
TOPICS = 200
TAGS = 60
SESSION = 20
TYPES = ("fact", "fact", "observation", "interaction", "decision", "preference", "event")


def _word(number: int) -> str:
    """A pronounceable word, another one for every number."""
    syllables = []
    number += 7
    while number:
        number, onset = divmod(number, len(_ONSETS))
        number, vowel = divmod(number, len(_VOWELS))
        syllables.append(_ONSETS[onset] + _VOWELS[vowel])
    return "".join(syllables) + _CODAS[len(syllables[0]) % len(_CODAS)]


class Corpus:
    """An endless log of made-up conversation turns, the same for the same seed.

    Words are as unevenly common as those of real text (Zipf). Turns of a session share a topic, so do their
    vectors; every third turn names somebody, every tenth a host, an address or a version.
    """

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self._words = np.array([_word(i) for i in range(VOCABULARY)])
        weights = 1 / np.arange(1, VOCABULARY + 1)
        self._cumulated = np.cumsum(weights / weights.sum())
        self._names = [f"{_word(i * 37).title()} {_word(i * 91 + 5).title()}" for i in range(NAMES)]

    def _drawn(self, source: np.random.Generator, shape: tuple[int, int]) -> npt.NDArray[np.str_]:
        return self._words[np.minimum(np.searchsorted(self._cumulated, source.random(shape)), VOCABULARY - 1)]

    def turns(self, count: int, start: int = 0) -> Iterator[dict[str, Any]]:
        """Fields of `AgentMemory.add`, without a vector."""
        source = np.random.default_rng((self.seed, start))
        for low in range(0, count, 1000):
            size = min(1000, count - low)
            words = self._drawn(source, (size, 18))
            picks = source.integers(0, 1 << 30, (size, 3)).tolist()
            for i, row in enumerate(words):
                number, (a, b, c) = start + low + i, picks[i]
                text = [str(w) for w in row]
                if number % 3 == 0:
                    text[4] = self._names[min(a % NAMES, b % NAMES)]
                if number % 10 == 5:
                    extra = (
                        f"db-{c % 300:03d}",
                        f"10.{a % 40}.{b % 8}.{c % 250}",
                        f"v{a % 4}.{b % 30}.{c % 9}",
                    )
                    text[11] = extra[c % 3]
                session = number // SESSION
                yield {
                    "content": f"{text[0].capitalize()} {' '.join(text[1:])}.",
                    "tags": sorted({f"tag{min(a, b) % TAGS:02d}", f"team{session % 7}"}),
                    "session_id": f"session-{session:06d}",
                    "speaker": ("user", "assistant")[number % 2],
                    "memory_type": TYPES[b % len(TYPES)],
                }

    def questions(self, count: int, seed: int = 2) -> list[str]:
        """Different texts of eight words, of which no store has seen any as a whole."""
        source = np.random.default_rng((self.seed, seed, 9))
        rows = self._drawn(source, (count, 8))
        return [f"{' '.join(row)} {self._names[i % NAMES]} {seed}x{i}?" for i, row in enumerate(rows)]

    def vectors(self, count: int, dimension: int, start: int = 0) -> Floats:
        """Unit rows float32 (count, dimension): a topic per session and noise, as embeddings of text have."""
        topics = np.random.default_rng((self.seed, dimension)).standard_normal(
            (TOPICS, dimension), np.float32
        )
        topics /= np.linalg.norm(topics, axis=1, keepdims=True)
        out = np.empty((count, dimension), np.float32)
        for low in range(0, count, 10_000):
            high = min(low + 10_000, count)
            source = np.random.default_rng((self.seed, dimension, start + low, 4))
            noise = source.standard_normal((high - low, dimension), np.float32) * np.float32(dimension**-0.5)
            sessions = np.arange(start + low, start + high) // SESSION
            # 0.6 and 0.8: a turn is closer to its session than to others, yet far from a duplicate of it.
            rows = np.float32(0.6) * topics[sessions * 2_654_435_761 % TOPICS] + np.float32(0.8) * noise
            out[low:high] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return out

    def memories(self, count: int, dimension: int, start: int = 0) -> Iterator[dict[str, Any]]:
        """Fields of `AgentMemory.add`, vector included."""
        for low in range(start, start + count, 10_000):
            size = min(10_000, start + count - low)
            rows = self.vectors(size, dimension, low)
            for turn, row in zip(self.turns(size, low), rows, strict=True):
                yield {**turn, "vector": row}


# -- embedders -------------------------------------------------------------------------------------------


class Supplied:
    """An embedder that costs next to nothing: a text's vector is its last word's topic, and noise from its hash."""

    def __init__(self, dimension: int) -> None:
        self.name = "supplied"
        self.fingerprint = f"supplied;dim={dimension}"
        self.dimension = dimension
        self.max_tokens = 100_000
        self._topics = np.random.default_rng(dimension).standard_normal((TOPICS, dimension), np.float32)
        self._topics /= np.linalg.norm(self._topics, axis=1, keepdims=True)

    def embed_query(self, text: str) -> Floats:
        digest = hashlib.sha256(text.encode()).digest()
        noise = np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(
            self.dimension, np.float32
        )
        topic = self._topics[zlib.crc32(text.rpartition(" ")[2].encode()) % TOPICS]
        row = np.float32(0.6) * topic + np.float32(0.8 * self.dimension**-0.5) * noise
        return row / np.linalg.norm(row)

    def embed_documents(self, texts: Sequence[str]) -> Floats:
        return np.stack([self.embed_query(text) for text in texts])

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\S+", text)]


class Coded(Supplied):
    """Supplied vectors with a made-up code per word, as the local encoder gives per token for late interaction.

    What `prepare` has seen costs a look-up, so that `add` can be timed without embedding.
    """

    token_codes = True

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self.fingerprint = f"coded;dim={dimension}"
        self._known: dict[str, tuple[Floats, Any]] = {}

    def _codes(self, text: str) -> Any:
        from twofold.embed.codes import TokenCodes

        spans = self.token_spans(text)
        bits = np.empty((len(spans), self.dimension // 8), np.uint8)
        for row, (start, stop) in zip(bits, spans, strict=True):
            row[:] = _code_of(text[start:stop], self.dimension // 8)
        return TokenCodes(bits, spans)

    def embed_query_with_codes(self, text: str) -> tuple[Floats, Any]:
        known = self._known.get(text)
        return (self.embed_query(text), self._codes(text)) if known is None else known

    def embed_documents_with_codes(self, texts: Sequence[str]) -> tuple[Floats, list[Any]]:
        found = [self.embed_query_with_codes(text) for text in texts]
        return np.stack([row for row, _ in found]), [codes for _, codes in found]

    def prepare(self, turns: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The turns as a list, their embedding done beforehand."""
        kept = list(turns)
        self.learn(f"{turn['speaker']}: {turn['content']}" for turn in kept)
        return kept

    def learn(self, texts: Iterable[str]) -> None:
        """Embed the texts now, so that they cost nothing later."""
        for text in texts:
            self._known[text] = self.embed_query_with_codes(text)

    def forget(self) -> None:
        """Drop what `prepare` has made."""
        self._known.clear()


@functools.lru_cache(maxsize=VOCABULARY)
def _code_of(word: str, size: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(zlib.crc32(word.encode())).integers(0, 256, size, np.uint8)


class LocalQueries(Coded):
    """A `Coded` store's documents, the real local encoder for every query."""

    def __init__(self, encoder: Any) -> None:
        super().__init__(encoder.dimension)
        # The fingerprint is that of `Coded`: a store filled by one may be read through the other.
        self.token_codes = encoder.token_codes
        self.embed_query = encoder.embed_query  # type: ignore[method-assign]
        self.embed_query_with_codes = encoder.embed_query_with_codes  # type: ignore[method-assign]


def build_store(folder: Path, rows: int, embedder: Supplied, *, batch: int = 1000, seed: int = 1) -> None:
    """A closed store with `rows` memories as this embedder gives them; plain `Supplied` gets given vectors."""
    from twofold import AgentMemory

    corpus = Corpus(seed)
    with AgentMemory(folder, embedder=embedder) as mem:
        coded = isinstance(embedder, Coded)
        mem.add_many(corpus.turns(rows) if coded else corpus.memories(rows, embedder.dimension), batch=batch)


# -- samples ---------------------------------------------------------------------------------------------


def interruptions() -> int:
    """How often the scheduler has taken the core away from this thread."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_nivcsw


@dataclass
class Samples:
    """Durations of single calls in ms. Clean ones are those during which the scheduler left the core to us.

    `cpu` is this thread's processor time of every call: what remains to compare by where no sample stays clean.
    """

    all: list[float] = field(default_factory=list)
    undisturbed: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def time(self, call: Callable[..., Any], *arguments: Any) -> Any:
        before, spent = interruptions(), thread_time_ns()
        start = perf_counter_ns()
        result = call(*arguments)
        took = (perf_counter_ns() - start) / 1e6
        self.cpu.append((thread_time_ns() - spent) / 1e6)
        self.all.append(took)
        if interruptions() == before:
            self.undisturbed.append(took)
        return result

    def until(self, clean: int, most: int, call: Callable[[], Any]) -> Samples:
        """Call until there are so many clean samples, at most `most` times; returns itself."""
        while len(self.undisturbed) < clean and len(self.all) < most:
            self.time(call)
        return self

    @property
    def clean(self) -> list[float]:
        """The undisturbed samples; all of them where fewer than ten are: then there is nothing better."""
        return self.undisturbed if len(self.undisturbed) >= min(10, len(self.all)) else self.all

    @property
    def best(self) -> float:
        return min(self.clean)

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.clean, q))

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    def summary(self) -> dict[str, float | int]:
        return {
            "min_ms": round(self.best, 6),
            "median_ms": round(self.median, 6),
            "p99_ms": round(self.quantile(0.99), 6),
            "cpu_min_ms": round(min(self.cpu), 6) if self.cpu else 0.0,
            "cpu_median_ms": round(float(np.median(self.cpu)), 6) if self.cpu else 0.0,
            "clean": len(self.undisturbed),
            "samples": len(self.all),
        }


def race(
    calls: Sequence[Callable[[], Any]],
    *,
    clean: int = 30,
    most: int = 200,
    seconds: float = 20,
    burst: int = 4,
) -> list[Samples]:
    """Samples of each call, taken in turns so that all meet the same machine.

    A turn is one call that does not count, which brings the contestant's data back into the caches, and `burst`
    calls that do. Ends when all have `clean` clean samples, or after `most` each, or after `seconds`.
    """
    found = [Samples() for _ in calls]
    start = perf_counter_ns()
    while any(len(s.undisturbed) < clean for s in found) and len(found[0].all) < most:
        for samples, call in zip(found, calls, strict=True):
            call()
            for _ in range(burst):
                samples.time(call)
        if perf_counter_ns() - start > seconds * 1e9:
            break
    return found


def paired(ours: Samples, base: Samples, *, burst: int = 4) -> float:
    """How many times as long ours takes: the median over the turns of a race of the ratio of the turns' leasts.

    A disturbance that lasts hits both contestants of a turn, and one that does not leaves most turns alone.
    """
    turns = range(0, min(len(ours.all), len(base.all)) - burst + 1, burst)
    return float(np.median([min(ours.all[i : i + burst]) / min(base.all[i : i + burst]) for i in turns]))


def cycle_of(call: Callable[[Any], Any], arguments: Iterable[Any]) -> Callable[[], Any]:
    """A call without arguments that takes the next of `arguments` each time, round and round."""
    kept, at = list(arguments), -1

    def step() -> Any:
        nonlocal at
        at = (at + 1) % len(kept)
        return call(kept[at])

    return step


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Slope of the costs over the sizes in double logarithms: 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


# -- the machine -----------------------------------------------------------------------------------------


def pin() -> int | None:
    """Keep this process on one core, the last it may use; None where the system has no such call."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def single_thread_environment(**more: str) -> dict[str, str]:
    """An environment for a child process whose libraries use one thread and choose their own kernels.

    OPENBLAS_CORETYPE is often set to make numpy reproducible; it would hold numpy back in a comparison.
    """
    child = {
        k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "NVPL_BLAS_DEBUG_CPU_TYPE")
    }
    one = dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
    )
    return child | one | more


def version(package: str) -> str | None:
    """Version of an installed distribution; None when it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def extension_compiler() -> str:
    """What the compiled core was built with, as the compiler wrote it into the file."""
    from twofold import _core

    written = re.search(
        rb"(?:GCC: \([^)]*\) [\d.]+|clang version [\d.]+)", Path(str(_core.__file__)).read_bytes()
    )
    return written.group().decode() if written else "unknown compiler"


def machine() -> dict[str, Any]:
    """What a figure depends on."""
    from twofold.core import __version__, kernel

    model = re.search(r"^model name\s*: (.*)$", _text("/proc/cpuinfo"), re.M)
    return {
        "twofold": __version__,
        "kernel": kernel(),
        "compiler": extension_compiler(),
        "cpu": model.group(1) if model else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.platform(terse=True),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def resident() -> int:
    """Bytes of RAM this process holds now."""
    pages = _text("/proc/self/statm").split()
    if pages:
        return int(pages[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def folder_bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


# -- a little C ------------------------------------------------------------------------------------------


def native() -> ctypes.CDLL | None:
    """`native.c`, compiled once per source into a folder of the user's; None without a C compiler.

    It has a reader that touches every byte once, and valgrind's requests where valgrind's header is installed.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source = HERE / "native.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    built = Path(tempfile.gettempdir()) / f"twofold-bench-{os.getuid()}" / f"native-{digest}.so"
    if not built.exists():
        built.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = built.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O3", "-shared", "-fPIC", "-o", str(fresh), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        fresh.rename(built)
    library = ctypes.CDLL(str(built))
    library.read_once.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.read_once.restype = ctypes.c_uint64
    library.dump.argtypes = [ctypes.c_char_p]
    library.has_valgrind.restype = ctypes.c_int
    return library


def huge_bytes(size: int) -> npt.NDArray[np.uint8]:
    """`size` bytes on huge pages where the system gives them, none of them untouched."""
    import mmap

    area = mmap.mmap(-1, size + (2 << 20))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(area, np.uint8)
    start = -whole.ctypes.data % (2 << 20)
    rows = whole[start : start + size]
    rows[:] = 1
    return rows


def reader_of(size: int) -> Callable[[], Any]:
    """A call that reads `size` bytes once, in order: what no scan of so many bytes of codes can beat."""
    rows = huge_bytes(size)
    library = native()
    if library is not None:
        return lambda: library.read_once(rows.ctypes.data, size)
    # No compiler: the C library's search for a byte that is not there reads nearly as fast.
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    memchr.restype = ctypes.c_void_p
    return lambda: memchr(rows.ctypes.data, 128, size)


# -- reports ---------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table with aligned columns."""
    cells = [list(map(str, header)), *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def show(ms: float) -> str:
    """A duration in the unit that suits it."""
    for unit, scale in (("s", 1e3), ("ms", 1.0), ("us", 1e-3)):
        if ms >= scale:
            return f"{ms / scale:.3g} {unit}" if ms / scale < 1000 else f"{ms / scale:.0f} {unit}"
    return f"{ms * 1e6:.3g} ns"


def growth(sizes: Sequence[int], costs: Sequence[float]) -> list[float]:
    """The exponent between each two neighbouring sizes."""
    points = list(zip(sizes, costs, strict=True))
    return [exponent([a[0], b[0]], [a[1], b[1]]) for a, b in pairwise(points)]


def say(text: str) -> None:
    """A line of progress, apart from the result."""
    print(text, file=sys.stderr, flush=True)
