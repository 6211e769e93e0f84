"""From a study on surrogates to a server of the target, by the commands that the examples name."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from sklearn.datasets import load_digits

EXAMPLES = Path(__file__).parents[2] / "examples"


def headwater(*arguments: str, folder: Path) -> str:
    command = [sys.executable, "-m", "headwater", *arguments, "--storage", "study.db"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_a_study_on_surrogates_ends_as_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = headwater("run", str(EXAMPLES / "surrogate.py"), "--trials", "6", folder=tmp_path)
    assert "target  loss" in shown
    assert "rank agreement" in shown
    headwater("best", "--save", "model.safetensors", folder=tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    serve = importlib.import_module("serve")
    images, labels = load_digits(return_X_y=True)
    with serve.make_server(str(tmp_path / "model.safetensors"), port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        answers = [json.load(urlopen(url, json.dumps(image.tolist()).encode())) for image in images[1400:1440]]
        with pytest.raises(HTTPError, match="400"):
            urlopen(url, b"[1, 2]")
        server.shutdown()
    right = sum(answer["digit"] == label for answer, label in zip(answers, labels[1400:1440], strict=True))
    assert right > 20, "a trained model gets most digits right, one in ten by chance"
