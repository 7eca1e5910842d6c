"""The answer-accuracy runner asks a real endpoint over HTTP: here one that reads the context it is given."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

RUNNER = Path(__file__).resolve().parent.parent / "benchmarks" / "quality" / "answers.py"


class Chat(BaseHTTPRequestHandler):
    """Answers with the colour that stands in the context, and grades by whether the reference is in the answer."""

    asked: int
    failures: int
    keys: set[str | None]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked += 1
        type(self).keys.add(self.headers["Authorization"])
        if type(self).failures:
            type(self).failures -= 1
            self.send_error(503 if body["model"] == "m" else 401)
            return
        system, user = (m["content"] for m in body["messages"])
        if "grade" in system:
            said = dict(line.split(": ", 1) for line in user.splitlines())
            reply = "CORRECT" if said["Reference"] in said["Answer"] else "WRONG"
        else:
            animal = user.split("colour is the ")[1].split("?")[0]
            seen = [c for c in ("red", "blue", "green") if f"{animal} is {c}" in user]
            reply = seen[0] if seen else "unknown"
        out = {"choices": [{"message": {"content": reply}}], "usage": {"total_tokens": 7}}
        data = json.dumps(out).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def chat() -> Iterator[tuple[str, type[Chat]]]:
    handler = type("Fresh", (Chat,), {"asked": 0, "failures": 0, "keys": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", handler
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("quality_answers", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tmp_path: Path) -> Path:
    facts = [("zebra", "red"), ("lion", "blue"), ("owl", "green"), ("hare", "red")]
    turns = [
        {"id": f"t{i}", "speaker": "Ann", "session": 0, "time": "", "text": f"The {animal} is {colour}"}
        for i, (animal, colour) in enumerate(facts)
    ]
    questions = [
        {
            "question": f"Which colour is the {animal}?",
            "evidence": [f"t{i}"],
            "category": "adversarial" if animal == "hare" else "single",
            # One reference is wrong on purpose: the table has to show it.
            "answer": "purple" if animal == "owl" else colour,
        }
        for i, (animal, colour) in enumerate(facts)
    ]
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps({"id": "c", "turns": turns, "questions": questions}) + "\n", encoding="utf-8")
    return path


def run(runner: Any, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["answers.py", "--embedder", "hashing", *map(str, arguments)])
    return int(runner.main())


def test_accuracy_beside_the_control_without_memory(
    runner: Any,
    chat: tuple[str, type[Chat]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, handler = chat
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    out = tmp_path / "x" / "answers.jsonl"
    given = ("--data", data, "--url", url, "--model", "m", "--out", out)
    handler.failures = 1  # a busy endpoint is asked again
    assert run(runner, monkeypatch, *given) == 0
    shown = capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert len(rows) == 6
    assert sum(r["correct"] for r in rows if r["memory"] == "recall") == 2
    assert not any(r["correct"] for r in rows if r["memory"] == "none")
    assert "66.7 [" in shown
    assert "judged by m" in shown
    assert handler.keys == {"Bearer sk-test"}
    asked = handler.asked
    # What was answered is not asked again.
    assert run(runner, monkeypatch, *given) == 0
    assert handler.asked == asked
    assert capsys.readouterr().out == shown
    assert run(runner, monkeypatch, *given, "--adversarial", "--limit", 2) == 0
    assert handler.asked == asked


def test_an_endpoint_that_refuses_is_named_and_nothing_is_lost(
    runner: Any,
    chat: tuple[str, type[Chat]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, handler = chat
    handler.failures = 1
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert (
        run(runner, monkeypatch, "--data", data, "--url", url, "--model", "other", "--out", tmp_path / "o")
        == 1
    )
    assert f"{url}/chat/completions answered 401" in capsys.readouterr().err
    assert handler.keys == {None}


def test_a_set_without_answers_is_refused(
    runner: Any,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    conversation = json.loads(data.read_text("utf-8"))
    for question in conversation["questions"]:
        del question["answer"]
    data.write_text(json.dumps(conversation) + "\n", encoding="utf-8")
    assert run(runner, monkeypatch, "--data", data, "--model", "m", "--out", tmp_path / "o") == 2
    assert 'no question has an "answer"' in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer,reference,expected",
    [
        ("The 7 May 2023", "7 May, 2023", 1.0),
        ("blue", "red", 0.0),
        ("in Paris", "Paris", 2 / 3),
        ("", "x", 0.0),
    ],
)
def test_token_f1(runner: Any, answer: str, reference: str, expected: float) -> None:
    assert runner.f1(answer, reference) == pytest.approx(expected)
