"""The tables of this release's schema, without partitions and tables by day: what a restore can fill."""

KNOWN = frozenset(
    """
    hocket.api_key hocket.attempt hocket.audit hocket.audit_head hocket.blob hocket.bulk_operation
    hocket.content hocket.dirty_day hocket.duration hocket.flow_pipeline hocket.flow_place
    hocket.flow_start hocket.installation hocket.kept_charge hocket.kind_change hocket.last_revision
    hocket.log_line hocket.node_type hocket.open_call hocket.outlook hocket.partition
    hocket.pipeline hocket.pipeline_release hocket.platform_key hocket.price hocket.refused_call
    hocket.replayed_run hocket.report_login hocket.restoration hocket.retention
    hocket.rollup_cache_savings hocket.rollup_calls hocket.rollup_cost_by_kind
    hocket.rollup_cost_by_label hocket.rollup_cost_by_outcome hocket.rollup_cost_by_pipeline_day
    hocket.rollup_cost_by_run hocket.rollup_cost_by_tenant hocket.rollup_critical_path
    hocket.rollup_error_hours hocket.rollup_experiments hocket.rollup_latency_by_node
    hocket.rollup_other_entries hocket.rollup_run_budgets hocket.rollup_run_hours
    hocket.rollup_run_totals hocket.rollup_slo_attainment hocket.rollup_state hocket.rollup_waste
    hocket.run hocket.schedule hocket.schedule_firing hocket.stale_day hocket.step hocket.step_cache
    hocket.step_cache_waiter hocket.step_days hocket.stray_call hocket.tenant_blob
    hocket.tenant_grants hocket.usage hocket.warm_time hocket.webhook hocket.webhook_delivery
    retrieval.chunk retrieval.collection retrieval.document
    """.split()
)
