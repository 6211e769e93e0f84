"""The key that a study and the workers that join it share: a file that its owner alone can read."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from headwater.errors import StudyError

KEY_FILE = "~/.config/headwater/join.key"
"""Where the key of a user is, of whichever machine has that home."""
FEWEST_BYTES = 16


def read_key(file: str | Path = KEY_FILE) -> bytes:
    """Return the key in a file.

    Raises:
        StudyError: It is not there, others can read it, or it is too short to keep anybody out.
    """
    path = Path(file).expanduser()
    try:
        about, content = path.stat(), path.read_bytes().strip()
    except OSError as error:
        raise StudyError(
            f"the key that workers join with cannot be read from {str(path)!r}: {error.strerror}; the study writes it "
            "when it begins: copy it from there, or name another with --key-file"
        ) from error
    others = 0o077 if about.st_uid == os.getuid() else 0o007  # a secret that somebody else mounts is read by a group
    if about.st_mode & others:
        raise StudyError(f"others can read the key in {str(path)!r}, and run code with it; chmod 600 {path}")
    if len(content) < FEWEST_BYTES:
        raise StudyError(f"the key in {str(path)!r} has {len(content)} bytes; it needs {FEWEST_BYTES}, drawn at random")
    return content


def have_key(file: str | Path = KEY_FILE) -> bytes:
    """Return the key in a file, and draw one if there is no such file.

    Raises:
        StudyError: It cannot be read or written.
    """
    path = Path(file).expanduser()
    if not path.exists():
        unfinished = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
                handle.write(secrets.token_hex(32).encode() + b"\n")
            with suppress(FileExistsError):  # whoever was first has drawn the key
                os.link(unfinished, path)
        except OSError as error:
            raise StudyError(
                f"no key can be written to {str(path)!r}: {error.strerror}; name another file with key_file"
            ) from error
        finally:
            with suppress(OSError):
                unfinished.unlink()
    return read_key(path)
