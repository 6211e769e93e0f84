"""Which configurations there have been, so that none comes twice."""

from __future__ import annotations

from random import Random

from headwater.space import Config, Space

NUM_DRAWS = 64
"""How often a configuration that was tried already is drawn again before what is left of the space is listed."""
NUM_DRAWS_LATE = 8
"""As before, when half of the space has been tried."""


class Tried:
    """The configurations that trials have had, and random draws of those that none has had."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._size = space.size
        self._names: set[str] = set()
        self._left: dict[str, Config] | None = None

    def add(self, config: Config) -> bool:
        """Note a configuration, and say whether it is new."""
        name = self._name(config)
        is_new = name not in self._names
        self._names.add(name)
        if self._left is not None:
            self._left.pop(name, None)
        return is_new

    def is_same(self, first: Config, second: Config) -> bool:
        """Whether two configurations of the space are one."""
        return self._name(first) == self._name(second)

    def draw(self, number: int) -> Config | None:
        """Draw a new configuration for trial `number`, and note it; None when a finite space has nothing left.

        It depends on the seed, the number and what was noted before alone. If a few configurations make up nearly all
        of an endless space, one of them comes again rather than none.
        """
        rng = Random(f"{self._seed}:{number}")
        is_late = self._size is not None and 2 * len(self._names) >= self._size
        for _ in range(NUM_DRAWS_LATE if is_late else NUM_DRAWS):
            config = self._space.sample(rng, number)
            if self.add(config):
                return config
        return config if self._size is None else self._draw_left(rng)

    def _draw_left(self, rng: Random) -> Config | None:
        if self._left is None:
            named = ((self._name(config), config) for config in self._space.configurations())
            self._left = {name: config for name, config in named if name not in self._names}
        if not self._left:
            return None
        config = self._left[rng.choice(list(self._left))]
        self.add(config)
        return config

    def _name(self, config: Config) -> str:
        return repr(self._space.encode(config))
