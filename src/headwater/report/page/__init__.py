"""A study as a page: what a browser is given of it, live from `headwater dashboard` or in one file by `report`."""
