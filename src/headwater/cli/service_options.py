"""What verbs that speak with a service share: where it is, and who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.errors import StudyError

if TYPE_CHECKING:
    from headwater.execute import Service

SERVER_VARIABLE, TOKEN_VARIABLE = "HEADWATER_SERVER", "HEADWATER_TOKEN"

ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", envvar=SERVER_VARIABLE, help="The service, such as http://lab-3:8700."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar=TOKEN_VARIABLE,
        show_envvar=True,
        help="Who asks the service; better in HEADWATER_TOKEN.",
    ),
]
RemoteStudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="What `headwater queue` calls the study.")]


def open_service(server: str | None, token: str | None) -> Service:
    """Return the service that is meant.

    Raises:
        StudyError: None is.
    """
    from headwater.execute import Service

    if not server:
        raise StudyError(f"no service is named; give its URL by --server, or in {SERVER_VARIABLE}")
    return Service(server, token)
