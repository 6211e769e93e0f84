"""A run is seen to work wherever it runs: in a log, through logging, in a notebook, and when it is interrupted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.report import Silence

SCRIPT = """
import time
import torch
from torch import nn
import headwater as hw

def train(trial):
    print("the function begins", flush=True)
    model = trial.prepare_model(nn.Linear(2, 1))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs({epochs}):
        for _ in range({steps}):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 2)).pow(2).mean()
            loss.backward()
            optimizer.step()
            time.sleep({seconds})
        trial.report(loss=loss.item())
        {after}

study = hw.Study(
    train, space={{"lr": hw.uniform(0.01, 0.1)}}, metric="loss", storage={storage}, executor="inline", **{settings}
)
"""
RUN = """
if __name__ == "__main__":
    try:
        result = study.run(num_trials={num_trials})
        print("interrupted" if result.was_interrupted else "done", len(result.trials))
    except KeyboardInterrupt as interrupt:
        print("raised", interrupt)
"""


def write_script(place: Path, run: str = RUN, num_trials: int = 4, settings: str = "{}", **fields: object) -> Path:
    given = {"epochs": 2, "steps": 3, "seconds": 0, "storage": None, "after": "pass", **fields}
    script = place / "script.py"
    script.write_text(SCRIPT.format(settings=settings, **given) + run.format(num_trials=num_trials))
    return script


def run_script(script: Path) -> tuple[str, str]:
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=script.parent)
    return done.stdout, done.stderr


def start_script(script: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(script)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, cwd=script.parent
    )


def read_until(stream: object, text: str) -> list[str]:
    lines: list[str] = []
    for line in stream:  # type: ignore[attr-defined]  # a pipe of text
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text!r} never came: {lines}")


def test_a_log_file_tells_what_is_done_and_prints_are_not_repeated(tmp_path: Path) -> None:
    out, log = run_script(write_script(tmp_path))
    assert out.splitlines() == ["the function begins", "done 4"]
    lines = [line.partition("] ")[2] for line in log.splitlines()]
    assert lines[:2] == ["study train-1: 4 trials", "measuring group sizes"]
    assert "4/4 trials" in lines[-1]
    assert "\x1b" not in log


def test_processes_that_start_are_named(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    script.write_text(script.read_text().replace('executor="inline"', 'executor="processes", devices=1'))
    _, log = run_script(script)
    assert "starting worker processes, then measuring group sizes" in log.splitlines()[2]


def test_a_program_with_logging_has_the_progress_there(tmp_path: Path) -> None:
    logging = 'import logging\nlogging.basicConfig(format="%(name)s %(levelname)s %(message)s", level=logging.INFO)\n'
    _, log = run_script(write_script(tmp_path, run=logging + RUN))
    assert "headwater INFO study train-1: 4 trials" in log.splitlines()
    assert all(line.startswith("headwater INFO ") for line in log.splitlines() if "trials" in line)


def test_an_interruption_is_acknowledged_at_once_and_the_script_can_tell(tmp_path: Path) -> None:
    script = write_script(tmp_path, settings='{"lanes": 1}', epochs=10**6, seconds=0.01)
    process = start_script(script)
    assert process.stdout is not None
    read_until(process.stdout, "the function begins")
    process.send_signal(signal.SIGINT)
    out, log = process.communicate(timeout=60)
    assert "it ends after the next report, with everything saved; Ctrl-C again ends it at once" in log
    assert out == "interrupted 4\n"


def test_a_script_may_want_to_be_interrupted_itself(tmp_path: Path) -> None:
    settings = '{"lanes": 1, "on_interrupt": "raise"}'
    process = start_script(write_script(tmp_path, settings=settings, epochs=10**6, seconds=0.01))
    assert process.stdout is not None
    read_until(process.stdout, "the function begins")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "raised interrupted; what was under way can be resumed\n"


def test_measuring_is_given_up_at_the_first_interruption(tmp_path: Path) -> None:
    """No step ends in the time that the test has: only giving up ends the run."""
    script = write_script(tmp_path, seconds=1000, steps=1000, storage='"study.db"')
    process = start_script(script)
    assert process.stderr is not None
    read_until(process.stderr, "measuring group sizes")
    process.send_signal(signal.SIGINT)
    out, log = process.communicate(timeout=60)
    assert "what was being measured is given up, and the run ends" in log
    assert out == "interrupted 4\n"
    assert "Traceback" not in log


def test_a_notebook_has_one_output_which_is_drawn_anew(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    write_script(tmp_path, run="")
    cells = [
        nbformat.v4.new_code_cell("import script"),
        nbformat.v4.new_code_cell("result = script.study.run(num_trials=4)"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(notebook, timeout=110, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = cells[1]["outputs"]
    shown = [output for output in outputs if output["output_type"] == "display_data"]
    assert len(shown) == 1
    assert "4/4 trials" in shown[0]["data"]["text/plain"]
    assert "ended" in shown[0]["data"]["text/plain"]
    assert shown[0]["data"]["text/html"].startswith("<pre>")
    others = [output for output in outputs if output not in shown]
    assert [output.get("name") for output in others] == ["stdout"] * len(others), json.dumps(others)


@pytest.mark.parametrize("is_measured", [True, False])
def test_a_debugger_is_heard_also_where_prints_are_not(is_measured: bool) -> None:
    script = dedent("""
        import sys
        from contextlib import nullcontext
        from headwater.train.quiet import quieting
        sys.breakpointhook = lambda: print("at the prompt")
        with quieting() if {is_measured} else nullcontext():
            print("a print")
            breakpoint()
        print("after")
    """).format(is_measured=is_measured)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*([] if is_measured else ["a print"]), "at the prompt", "after"]


class Phases(Silence):
    """Keeps what is said to be done."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []

    def phase(self, text: str | None) -> None:
        self.texts.append(text)


def test_whoever_watches_is_told_about_how_long_measuring_takes() -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        loader = trial.prepare_data_loader(TensorDataset(torch.ones(10_000, 1)), batch_size=1)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in trial.epochs(1000):
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                if phases.texts[-1] is None:  # it trains: there is nothing more to see
                    trial.report(loss=1.0)

    phases = Phases()
    space = {"lr": hw.choice([0.1, 0.2, 0.3, 0.4])}
    hw.Study(train, space=space, metric="loss", storage=None, executor="inline", max_epochs=1).run(watcher=phases)
    assert phases.texts[0] == "measuring group sizes"
    assert re.fullmatch(r"measuring group sizes, about [1-9]\d* s", phases.texts[1] or "")
    assert phases.texts[-1] is None
