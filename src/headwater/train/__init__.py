"""What the user's function holds, and the running of that function for a group of lanes."""

from headwater.train.trial import Trial

__all__ = ["Trial"]
