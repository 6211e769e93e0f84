"""The options by which `run` trains on jobs of Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.errors import StudyError

if TYPE_CHECKING:
    from headwater.study import Study

ListenOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="With --executor slurm: an address of this machine that the nodes reach; port 0: any."
    ),
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="With --executor slurm: an option of sbatch; may be given repeatedly."),
]


def use_slurm(study: Study, listen: str | None, sbatch: Sequence[str] | None) -> Study:
    """Have a study train on jobs of Slurm as the options say.

    Raises:
        StudyError: Something else trains, or an option makes no sense.
    """
    options = _read_options(sbatch or ())
    if listen is None and not options:
        return study
    if study.executor != "slurm":
        raise StudyError(
            f"--sbatch and --listen are for --executor slurm, and the study trains on {study.executor!r}; leave the "
            "option out, or train there"
        )
    from headwater.execute import SlurmExecutor

    executor = SlurmExecutor(max_workers=study.devices or 2, options=options, listen=listen or "0.0.0.0:0")
    return replace(study, executor=executor)


def _read_options(given: Sequence[str]) -> dict[str, str]:
    options = dict(one.removeprefix("--").split("=", 1) for one in given if "=" in one)
    if len(options) != len(given):
        raise StudyError(f"--sbatch got {' '.join(given)!r}; write each as NAME=VALUE, as in --sbatch partition=gpu")
    return options
