"""Tokens: drawn at random, shown once, known afterwards by their hashes alone."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from hashlib import sha256

from headwater.errors import StudyError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as the service keeps it."""

    id: str
    """Names it where it is listed or revoked; says nothing of the token itself."""
    user: str
    created: float
    note: str = ""


def draw_token() -> str:
    """Return a new token."""
    return f"hw_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """Return what is kept of a token. It is random and long, so no salt or slow hash is needed."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_hash_of(kept: str, token: str) -> bool:
    """Tell whether this is the token of a hash, in a time that says nothing of how much of it is right."""
    return hmac.compare_digest(kept.encode(), hash_token(token).encode())


def check_user_name(name: str) -> None:
    """Refuse what cannot be the name of a user.

    Raises:
        StudyError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise StudyError(
            f"user is {name!r:.60}; a user's name has 1 to 40 small letters, digits, dots, dashes and underscores, "
            "and begins with a letter or a digit"
        )
