"""Studies that run elsewhere, in a service: what is sent there, following them, and reading what came of them."""
