"""Many models as one: lanes, the mode that computes with them, their optimizers and schedulers."""
