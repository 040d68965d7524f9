DROP VIEW report.cost_by_kind;
DROP VIEW report.usage;
