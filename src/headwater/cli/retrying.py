"""The verb `retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.recorded_settings import as_recorded, override
from headwater.cli.running import conclude, load, set_running, watch
from headwater.cli.terminal import (
    DevicesOption,
    ExecutorOption,
    FileArgument,
    JsonOption,
    LanesOption,
    QuietOption,
    TimeBudgetOption,
    telling_errors,
)
from headwater.settings import STORAGE_VARIABLE

if TYPE_CHECKING:
    from headwater.report.progress import RunWatcher
    from headwater.trials import Result


def retry(  # noqa: PLR0913 - one parameter for each option
    file: FileArgument,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", envvar=STORAGE_VARIABLE, help="The record: a path or a database URL.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which study of the record; the newest by default.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Which study of FILE, if there are several.")
    ] = None,
    lanes: LanesOption = None,
    executor: ExecutorOption = None,
    devices: DevicesOption = None,
    time_budget: TimeBudgetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train trials and targets again that have failed, and go on with the study as `resume` does.

    For failures whose cause is gone. FILE must define the study as it was when it ran, but for the bug that was mended.
    """
    with telling_errors():
        grouped = set_running(load(file, study).study, lanes, None, None, executor, devices)
        chosen = as_recorded(override(grouped, {"storage": storage, "name": name}), None, None)

        def start(watcher: RunWatcher) -> Result:
            return chosen.retry(time_budget=time_budget, watcher=watcher)

        conclude(watch(file, chosen, start, quiet), file, as_json=as_json)
