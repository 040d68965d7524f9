"""How runs fare while servers, coordinators or models are down, and next to hostile runs."""
