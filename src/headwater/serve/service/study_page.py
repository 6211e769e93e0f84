"""What the page of a study shows, read by a process of the study's own system user. Run as a module, this prints it."""

from __future__ import annotations

import json
import sys

from headwater.errors import HeadwaterError
from headwater.report.page.report_file import describe_study

if __name__ == "__main__":
    try:
        shown = describe_study(sys.argv[2], sys.argv[1], with_importance=sys.argv[3] == "importance")
    except HeadwaterError as error:
        sys.exit(f"error: {error}")
    json.dump(shown, sys.stdout, separators=(",", ":"), allow_nan=False)
