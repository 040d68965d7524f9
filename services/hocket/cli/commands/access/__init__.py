"""Commands about keys, the audit and the data of tenants."""
