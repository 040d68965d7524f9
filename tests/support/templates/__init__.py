"""Templates and expressions for the tests: honest ones, hostile ones, and Jinja2's own results."""
