"""What is sent of each study, made once for all who work for it."""

from __future__ import annotations

from pathlib import Path

from headwater.conduct.protocol import Conductor
from headwater.execute.sending import send_value
from headwater.trials import Brief


class Briefs:
    """The briefs of the studies of one run; their large tensors and arrays are in files in a folder."""

    def __init__(self, conductor: Conductor, folder: Path) -> None:
        self._conductor = conductor
        self._folder = folder
        self._packed: dict[str, tuple[Brief, bytes]] = {}

    def find(self, study: str) -> tuple[Brief, bytes]:
        """Return the brief of a study, as it is and as it is sent."""
        if study not in self._packed:
            brief = self._conductor.brief(study)
            self._packed[study] = brief, send_value(brief, self._folder, brief.process_settings)
        return self._packed[study]

    def name_meeting(self, key: int) -> str:
        """Return where the ranks of a placement meet, if they are on this machine: a file in the folder of the run."""
        return f"file://{self._folder}/ranks-{key}"
