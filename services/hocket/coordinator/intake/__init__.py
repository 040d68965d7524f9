"""Tasks on their way into a partition's log: fetched, checked, admitted, or made to wait."""
