"""The verb `worker`: a machine offers a device to a study."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from headwater.cli.terminal import open_err, telling_errors
from headwater.errors import StudyError

JoinArgument = Annotated[
    str | None, typer.Option("--join", metavar="URL", help="Where the study says that workers join: tcp://HOST:PORT.")
]
KeyFileOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The key that a study and its workers share; one of your own by default."),
]


def worker(  # noqa: PLR0913 - one parameter for each option
    join: JoinArgument = None,
    key_file: KeyFileOption = None,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda|cuda:N", help="What it offers: a core, a GPU, or a certain GPU.")
    ] = "cpu",
    lease: Annotated[
        str | None, typer.Option(metavar="TIME", help="When to leave, such as 90s, 30m or 1h30m from now.")
    ] = None,
    patience: Annotated[
        str, typer.Option(metavar="TIME", help="How long to look for a study that is not there, or not any more.")
    ] = "30s",
    manifest: Annotated[
        str | None, typer.Option(metavar="kubernetes", help="Print a Job that runs such workers, and end.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="With --manifest: an image with Python, Headwater and your code."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="With --manifest: how many workers to run.")] = 1,
) -> None:
    """Offer a core or a GPU of this machine to a study that runs on executor join, until it needs it no more.

    Ctrl-C, SIGTERM or the end of the lease has it leave at its next report, with all saved; Ctrl-C again at once.
    A worker runs the code that its study sends, and the study trusts what it answers: both must have the same key.
    """
    from headwater.cli.plan_sources import parse_seconds

    with telling_errors():
        if join is None:
            raise StudyError("give --join URL; a study that runs with --executor join says where workers join it")
        if manifest is not None:
            _print_manifest(manifest, join, image, device, workers)
            return
        from headwater.execute.join_keys import KEY_FILE, read_key
        from headwater.execute.joining_worker import Left, Offer, work_for_study

        offer = Offer(
            url=join,
            key=read_key(key_file or KEY_FILE),
            device=device,
            lease_s=None if lease is None else parse_seconds(lease),
            patience_s=parse_seconds(patience),
        )
        left = work_for_study(offer, lambda text: open_err().print(escape(text), soft_wrap=True))
        if left is Left.NO_STUDY:
            raise StudyError(
                f"no study answers at {join}, and none did for {patience}; check the address that a study with "
                "--executor join prints, and that this machine reaches it, or wait longer with --patience 5m"
            )
        open_err().print(f"left: {left.value}", soft_wrap=True)


def _print_manifest(kind: str, join: str, image: str | None, device: str, num_workers: int) -> None:
    from headwater.cloud.kubernetes_job import write_job

    if kind != "kubernetes":
        raise StudyError(f"--manifest is {kind!r}; it must be kubernetes")
    if image is None:
        raise StudyError("--manifest kubernetes needs --image IMAGE, with Python, Headwater and what your code imports")
    typer.echo(write_job(join, image, device=device, num_workers=num_workers), nl=False)
