"""The options by which `run` trains on workers that join, of their own accord or as jobs of Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.worker import KeyFileOption
from headwater.errors import StudyError

if TYPE_CHECKING:
    from headwater.study import Study

__all__ = ["KeyFileOption", "ListenOption", "SbatchOption", "use_workers"]

ListenOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="With --executor join or slurm: where workers join; 0.0.0.0 for any host."),
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="With --executor slurm: an option of sbatch; may be given repeatedly."),
]


def use_workers(study: Study, listen: str | None, key_file: str | None, sbatch: Sequence[str] | None) -> Study:
    """Have a study train on workers that join as the options say.

    Raises:
        StudyError: Something else trains, or an option makes no sense.
    """
    given: dict[str, Any] = {"listen": listen, "key_file": key_file}  # Any: arguments of executors
    given = {name: value for name, value in given.items() if value is not None}
    options = _read_options(sbatch or ())
    if not given and not options:
        return study
    executor = study.executor
    if executor not in ("join", "slurm") or (options and executor == "join"):
        wanted = (
            "--sbatch is for --executor slurm"
            if options
            else "--listen and --key-file are for --executor join or slurm"
        )
        raise StudyError(f"{wanted}, and the study trains on {executor!r}; leave the option out, or train there")
    if executor == "slurm":
        from headwater.execute import SlurmExecutor

        return replace(study, executor=SlurmExecutor(max_workers=study.devices or 2, options=options, **given))
    from headwater.execute import JoinExecutor
    from headwater.train.running import choose_device

    return replace(study, executor=JoinExecutor(kind=choose_device(study.device, is_here=False).type, **given))


def _read_options(given: Sequence[str]) -> dict[str, str]:
    options = dict(one.removeprefix("--").split("=", 1) for one in given if "=" in one)
    if len(options) != len(given):
        raise StudyError(f"--sbatch got {' '.join(given)!r}; write each as NAME=VALUE, as in --sbatch partition=gpu")
    return options
