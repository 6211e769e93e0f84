"""Writes what one process prints into the logs of all studies that it trains, as long as they are in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Copy standard input to open files until it ends.

    Each argument is the number of a log, a colon, and the file that is there when its study has ended.
    """
    logs = [(int(number), Path(ended)) for number, _, ended in (one.partition(":") for one in sys.argv[1:])]
    while chunk := os.read(0, 2**16):
        for log, ended in logs:
            if not ended.exists():
                os.write(log, chunk)


if __name__ == "__main__":
    main()
