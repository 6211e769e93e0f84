"""Training loops in the style of public scripts, each a few lines away from how its like is written everywhere."""
