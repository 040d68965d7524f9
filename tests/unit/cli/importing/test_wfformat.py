"""WfFormat workflows made pipelines: the graph, the times, names that can be traced, clear refusals."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from hocket.cli.importing.wfformat import REPLAY_HANDLER, pipeline_of
from hocket.schemas.errors import DocumentInvalid, InvalidInput
from hocket.schemas.pipeline.plan import check_input, compile_pipeline
from support.places import DATA

INSTANCES = sorted(DATA.glob("wfinstances/*.json.gz"))


def task(name: str, *parents: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "id": name, "parents": list(parents), "children": []} | more


def ran(name: str, seconds: float, **more: Any) -> dict[str, Any]:
    return {"id": name, "runtimeInSeconds": seconds} | more


def workflow(
    tasks: list[dict[str, Any]], executed: list[dict[str, Any]] | None = None, **more: Any
) -> dict[str, Any]:
    if executed is None:
        executed = [ran(t["id"], 1.0) for t in tasks]
    found = {"specification": {"tasks": tasks}, "execution": {"tasks": executed}}
    return {"name": "w", "schemaVersion": "1.5", "workflow": found} | more


def refusal(document: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as caught:
        pipeline_of(document, **options)
    return caught.value.fields["field"], str(caught.value)


def test_each_task_is_a_node_that_needs_its_parents_and_sleeps_its_scaled_runtime() -> None:
    document = workflow(
        [task("a"), task("b", "a"), task("c", "a", "b")], [ran("a", 2), ran("b", 30), ran("c", 0)]
    )
    pipeline = pipeline_of(document, scale=0.01)
    assert pipeline["pipeline"] == "w"
    assert {n: node.get("needs") for n, node in pipeline["nodes"].items()} == {
        "a": None,
        "b": ["a"],
        "c": ["a", "b"],
    }
    assert pipeline["nodes"]["b"]["handler"] == REPLAY_HANDLER
    assert pipeline["nodes"]["b"]["with"] == {"task": "b", "seconds": 0.3}
    assert pipeline["nodes"]["b"]["expect"] == {"mean_ms": 300}
    assert "expect" not in pipeline["nodes"]["c"]


def test_an_edge_that_only_the_parent_tells_counts_too() -> None:
    document = workflow([task("a", children=["b"]), task("b")])
    assert pipeline_of(document)["nodes"]["b"]["needs"] == ["a"]


def test_long_tasks_get_the_time_they_need_and_the_run_a_deadline_that_fits() -> None:
    pipeline = pipeline_of(workflow([task("a"), task("b", "a")], [ran("a", 100), ran("b", 10)]))
    assert pipeline["nodes"]["a"]["timeout_ms"] == 400_000
    assert "timeout_ms" not in pipeline["nodes"]["b"]
    assert pipeline["slo_ms"] == 440_000


def test_names_that_no_node_may_have_are_made_valid_distinct_and_traceable() -> None:
    long = "SOME.WORKFLOW.WITH." + "A.VERY.LONG.PREFIX." * 5 + "LAST_STEP_7"
    ids = ["a.b (x)", "a:b (x)", "_y", "(((", long, "x" * 100, "x" * 99]
    pipeline = pipeline_of(workflow([task(i) for i in ids]))
    compile_pipeline(pipeline)
    by_task = {node["with"]["task"]: name for name, node in pipeline["nodes"].items()}
    assert by_task["a.b (x)"] == "a_b_x_"
    assert by_task["a:b (x)"] == "a_b_x_-2"
    assert by_task["_y"] == "y"
    assert by_task[long].endswith("_LAST_STEP_7")
    assert by_task["x" * 100] != by_task["x" * 99]
    assert sorted(by_task) == sorted(ids)


@pytest.mark.parametrize(
    "braces",
    [
        "awk {{print $1}} {% x %}",
        "{{print $1}}\n",
        "{{print $1}}\r\n\n",
        "{#\r",
        "\n{{ '{' }}",
        "{{ 5 }}",
        "'\"\\{{\\'}} \\n \t\u00e9 \u6771 \U0001f600 \x1b \u2028",
        "{%" * 20_000,
    ],
    ids=range(8),
)
def test_details_carry_program_arguments_and_files_as_they_are_written(braces: str) -> None:
    tasks = [task("a", inputFiles=["i"], outputFiles=["o"])]
    command = {"program": "awk", "arguments": ["-f", braces]}
    document = workflow(tasks, [ran("a", 1, command=command)])
    pipeline = pipeline_of(document, handler="acme.steps:run", details=True)
    evaluate = compile_pipeline(pipeline).by_path["a"].input
    assert evaluate is not None
    assert evaluate({}) == {
        "task": "a",
        "seconds": 1.0,
        "program": "awk",
        "arguments": ["-f", braces],
        "inputs": ["i"],
        "outputs": ["o"],
    }


def test_a_task_that_never_ran_can_be_imported_for_a_handler_that_does_its_work() -> None:
    document = workflow([task("a")], [])
    assert refusal(document)[0] == "workflow.execution.tasks"
    pipeline = pipeline_of(document, handler="acme.steps:run")
    assert pipeline["nodes"]["a"]["with"] == {"task": "a"}


def test_runtimes_that_nobody_needs_may_be_told_twice() -> None:
    """Such documents were refused, also with a handler, and for tasks that are not in the workflow."""
    twice = [ran("a", 1, command={"program": "first"}), ran("a", 99), ran("b", 1)]
    document = workflow([task("a"), task("b")], twice)
    field, message = refusal(document)
    assert field == "workflow.execution.tasks[1].id"
    assert "--handler" in message
    pipeline = pipeline_of(document, handler="acme.steps:run", details=True)
    given = {name: node["with"] for name, node in pipeline["nodes"].items()}
    assert (given["a"].get("seconds"), given["a"]["program"]) == (None, "first")
    assert given["b"]["seconds"] == 1

    elsewhere = workflow([task("a")], [ran("a", 1), ran("z", 1), ran("z", 1)])
    assert pipeline_of(elsewhere)["nodes"]["a"]["with"] == {"task": "a", "seconds": 1}


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ([], "(document)", "not a JSON object"),
        ({}, "schemaVersion", "it is missing"),
        ({"schemaVersion": "1.3", "workflow": {}}, "schemaVersion", "`1.3` is not supported"),
        ({"schemaVersion": "1.5"}, "workflow", "it is missing"),
        (workflow([]), "workflow.specification.tasks", "the number of entries is 0. Use at least 1."),
        (workflow([{"id": "a"}], []), "workflow.specification.tasks[0].parents", "it is missing"),
        (workflow([{"parents": []}], []), "workflow.specification.tasks[0].id", "it is missing"),
        (workflow([task("a")], [{"id": "a"}]),
         "workflow.execution.tasks[0].runtimeInSeconds", "it is missing"),
        (workflow([task("a")], [ran("a", -1)]),
         "workflow.execution.tasks[0].runtimeInSeconds", "Use 0 or more"),
        (workflow([task("a"), task("a")]), "workflow.specification.tasks[1].id", "`a`"),
        (workflow([task("a")], [ran("a", 1), ran("a", 99)]),
         "workflow.execution.tasks[1].id", "`a` was executed twice"),
        (workflow([task("a"), task("b", "a", "z")]),
         "workflow.specification.tasks[1].parents[1]", "no task `z`"),
        (workflow([task("a", children=["z"])]),
         "workflow.specification.tasks[0].children[0]", "no task `z`"),
        (workflow([task("a", "b"), task("b", "a")]), "workflow.specification.tasks", "a -> b"),
        (workflow([task("a", "a")]), "workflow.specification.tasks", "a -> a"),
        (workflow([task(f"t{n}") for n in range(1_001)]), "workflow.specification.tasks",
         "1000 nodes"),
        (workflow([task("a")], [ran("a", 90_000)]), "--scale", "would take 90000 s"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused_by_field(document: Any, field: str, words: str) -> None:
    found, message = refusal(document)
    assert found == field
    assert words in message


def test_of_a_faulty_task_only_its_fault_is_told() -> None:
    """It said that there are no tasks, too: the faulty one was not counted."""
    assert refusal(workflow([{"id": "a", "parents": "b"}], []))[1] == (
        "`workflow.specification.tasks[0].parents` is not valid: it is text, not a list. Write a list: "
        "`[...]`."
    )


@pytest.mark.parametrize(
    ("option", "field"), [("handler", "nodes.a.handler"), ("name", "pipeline")]
)
def test_an_empty_option_is_not_the_default(option: str, field: str, tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps(workflow([task("a")])))
    found = CliRunner().invoke(cli, ["import", "wfformat", str(file), f"--{option}", ""])
    assert isinstance(found.exception, DocumentInvalid)
    assert found.exception.fields["field"] == field


@pytest.mark.skipif(not INSTANCES, reason=f"the shared data is not in {DATA}")
def test_every_shared_instance_becomes_a_pipeline_with_the_same_edges() -> None:
    assert len(INSTANCES) == 45
    for path in INSTANCES:
        document = json.loads(gzip.decompress(path.read_bytes()))
        plan = compile_pipeline(pipeline_of(document, scale=0.01))
        check_input(plan, {})
        ids = {name: node.node.with_["task"] for name, node in plan.root.nodes.items()}
        edges = {(ids[need], ids[n]) for n, node in plan.root.nodes.items() for need in node.needs}
        tasks = document["workflow"]["specification"]["tasks"]
        assert sorted(ids.values()) == sorted(t["id"] for t in tasks), path.name
        assert edges == {(p, t["id"]) for t in tasks for p in t["parents"]}, path.name
