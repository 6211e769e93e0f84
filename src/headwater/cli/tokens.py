"""The verb `token`: who may ask a service."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.markup import escape

from headwater.cli.terminal import (
    JsonOption,
    StorageOption,
    name_storage,
    open_err,
    open_out,
    print_json,
    telling_errors,
)
from headwater.errors import StudyError
from headwater.settings import DEFAULT_STORAGE, check_one_of

ACTIONS = ("create", "ls", "revoke")


def token(  # noqa: PLR0913 - one parameter for each option
    action: Annotated[str, typer.Argument(metavar="create|ls|revoke", help="What is done.")],
    who: Annotated[
        str | None, typer.Argument(metavar="[USER|ID]", help="Whose token; which one is revoked, or a user's all.")
    ] = None,
    role: Annotated[str, typer.Option(metavar="admin|user|viewer", help="create: what the user may do.")] = "user",
    weight: Annotated[
        float | None, typer.Option(min=0.001, metavar="X", help="create: the user's share beside others; 1 at first.")
    ] = None,
    min_devices: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="create: how many devices the user has for certain.")
    ] = None,
    max_devices: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="create: how many devices the user has at most.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="create: device-seconds that the user may take in all."),
    ] = None,
    as_json: JsonOption = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Make, list or revoke the tokens of a service's users, in its storage; it need not run.

    A token is printed once, and its hash alone is kept. `create` again gives a user another one, and other settings.
    """
    with telling_errors():
        check_one_of("the action", action, ACTIONS)
        if (who is None) != (action == "ls"):
            raise StudyError("say whose token: headwater token create USER, headwater token revoke USER or ID")
        given = {"weight": weight, "min_devices": min_devices, "max_devices": max_devices, "budget_device_s": budget}
        limits = {key: value for key, value in given.items() if value is not None}
        if action == "create":
            _create(str(who), role, limits, storage)
        elif action == "ls":
            _list_tokens(storage, as_json=as_json)
        else:
            _revoke(str(who), storage)


def _create(user: str, role: str, limits: dict[str, float], storage: str) -> None:
    from headwater.serve.service.store import ServiceStore
    from headwater.serve.service.values import Role

    check_one_of("--role", role, tuple(map(str, Role)))
    with ServiceStore.open(storage) as store:
        store.add_user(user, Role(role), limits)
        made = store.create_token(user)
    told = f"{role} {user}, in {name_storage(storage)}; this token is shown once:"
    open_err().print(escape(told), soft_wrap=True)
    typer.echo(made)


def _list_tokens(storage: str, *, as_json: bool) -> None:
    from headwater.report.queue_table import tokens_table
    from headwater.serve.service.store import ServiceStore

    with ServiceStore.open(storage) as store:
        users, tokens = {user.name: user for user in store.users()}, store.tokens()
    rows = [
        {
            "id": one.id,
            "user": one.user,
            "role": users[one.user].role.value,
            "created": datetime.fromtimestamp(one.created).astimezone().isoformat(timespec="seconds"),
            "note": one.note,
        }
        for one in tokens
    ]
    if as_json:
        print_json({"tokens": rows})
    else:
        open_out().print(tokens_table(rows))


def _revoke(which: str, storage: str) -> None:
    from headwater.serve.service.store import ServiceStore

    with ServiceStore.open(storage) as store:
        count = store.revoke_tokens(which)
    if not count:
        raise StudyError(f"no token has the id or the user {which!r:.60}; headwater token ls lists them")
    open_out().print(escape(f"{count} token{'s' * (count > 1)} of {which} revoked"), soft_wrap=True)
