"""Who decides: what a study places on devices, what becomes of each trial at its reports, and when a run ends."""
