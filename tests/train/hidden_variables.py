"""Variables of a module that a training function changes by their names in it."""

count = 0
state = {"best": 1e9}
