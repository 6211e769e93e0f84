"""The dashboard: studies in a browser, live. The only package that imports a web framework."""
