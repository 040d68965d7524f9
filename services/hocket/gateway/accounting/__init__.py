"""What calls cost: budgets reserved and settled, records booked, journals recovered."""
