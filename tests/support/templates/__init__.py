"""Templates and expressions for tests: honest ones, hostile ones, and the results of Jinja2 itself."""
