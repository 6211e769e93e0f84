"""The verb `bubbles`, which lists what a pipeline lends, and the option by which studies train there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.terminal import JsonOption, open_out, print_json, telling_errors
from headwater.errors import StudyError
from headwater.stalls import LentPage, LentStage, StallState, find_page, list_lent

if TYPE_CHECKING:
    from headwater.study import Study

BubblesOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Train in the bubbles that a pipeline lends there; --devices are more."),
]


def bubbles(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that hw.lend_bubbles was given.")],
    as_json: JsonOption = False,
) -> None:
    """List the stages of a pipeline whose bubbles are lent, and which part of the time each waits."""
    with telling_errors():
        rows = [_describe(stage, _look(folder, stage)) for stage in list_lent(folder)]
        if not rows:
            raise StudyError(
                f"no pipeline lends its bubbles in {folder}; start the training with "
                f"hw.lend_bubbles(schedule, {str(folder)!r}), and wait for its first step"
            )
        if as_json:
            print_json({"folder": str(folder), "stages": rows})
            return
        from headwater.report.tables import bubbles_table

        open_out().print(bubbles_table(rows))


def use_bubbles(
    study: Study, folder: Path | None, cluster: str | None, executor: str | None, devices: int | None
) -> Study:
    """Have a study train where a pipeline lends its bubbles, if that is asked for.

    Raises:
        StudyError: Another place is asked for too.
    """
    if folder is None:
        return study
    for name, value in (("cluster", cluster), ("executor", None if executor == "processes" else executor)):
        if value is not None:
            raise StudyError(f"--bubbles and --{name} {value} both say where to train; give one of them")
    from headwater.execute import ProcessExecutor
    from headwater.train.running import choose_device

    return replace(study, executor=ProcessExecutor(devices or 0, kind=choose_device(study.device).type, bubbles=folder))


def _look(folder: Path, stage: LentStage) -> StallState:
    with LentPage(find_page(folder, stage.stage)) as page:
        return page.state


def _describe(stage: LentStage, state: StallState) -> dict[str, Any]:  # Any: JSON values
    return {
        "stage": stage.stage,
        "num_stages": stage.num_stages,
        "pid": stage.pid,
        "device": stage.device,
        "cores": list(stage.cores),
        "waits": state.share,
        "steps": state.num_steps,
        "memory_bytes": stage.memory_bytes,
    }
