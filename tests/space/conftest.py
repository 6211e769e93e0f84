"""Property tests try the same examples everywhere, and a busy machine may take its time over them."""

from hypothesis import settings

settings.register_profile("headwater", derandomize=True, deadline=None, database=None)
settings.load_profile("headwater")
