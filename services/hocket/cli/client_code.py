"""Generates the methods of `hocket.client` from the API's OpenAPI document, with and without asyncio.

`python -m hocket.cli.client_code` writes the files; `make docs` calls it. The method name of a new
operation has to be added to METHODS.
"""

import importlib
import pkgutil
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import AwareDatetime, BaseModel

import hocket.schemas
from hocket.admin.app import make_app
from hocket.admin.context import Context
from hocket.kit.access.key_book import KeyBook

FOLDER = Path(__file__).parents[1] / "client"
RESOURCES = {
    "runs": "RunsApi",
    "steps": "StepsApi",
    "logs": "LogsApi",
    "pipelines": "PipelinesApi",
    "approvals": "ApprovalsApi",
    "flow": "FlowApi",
    "bulk": "BulkApi",
    "schedules": "SchedulesApi",
    "webhooks": "WebhooksApi",
    "types": "NodeTypesApi",
    "costs": "CostsApi",
    "calls": "CallsApi",
    "content": "ContentApi",
    "experiments": "ExperimentsApi",
    "backends": "BackendsApi",
    "dead_letters": "DeadLettersApi",
    "keys": "KeysApi",
    "grants": "GrantsApi",
    "audit": "AuditApi",
    "platform": "PlatformApi",
}
OF_RUNS = frozenset(
    ("runs", "steps", "logs", "pipelines", "approvals", "flow", "bulk", "schedules", "webhooks")
)
"""Resources about runs and what starts them; all others are about the platform."""
WITH_KEYS = {
    ("submit_run", "idempotency_key"): "new_key() if idempotency_key is None else idempotency_key",
    ("submit_runs", "runs"): "with_keys(runs)",
}
"""The fields of submissions whose tasks get a key if they have none. An empty key is sent, and refused:
with a new one the task would be another run each time."""
METHODS = {
    "submit_run": "runs.submit",
    "list_runs": "runs.list",
    "show_run": "runs.get",
    "list_steps": "steps.list",
    "show_journal": "runs.journal",
    "show_logs": "logs.list",
    "show_cost": "runs.cost",
    "show_trace": "runs.trace",
    "compare_runs": "runs.compare",
    "cancel_run": "runs.cancel",
    "signal_run": "runs.signal",
    "retry_run": "runs.retry",
    "rerun_run": "runs.rerun",
    "apply_pipeline": "pipelines.apply",
    "validate_pipeline": "pipelines.validate",
    "list_pipelines": "pipelines.list",
    "show_pipeline": "pipelines.get",
    "diff_pipeline": "pipelines.diff",
    "show_release": "pipelines.release",
    "activate_pipeline": "pipelines.activate",
    "roll_back_pipeline": "pipelines.roll_back",
    "show_canary": "pipelines.canary",
    "put_canary": "pipelines.put_canary",
    "end_canary": "pipelines.end_canary",
    "archive_pipeline": "pipelines.archive",
    "unarchive_pipeline": "pipelines.unarchive",
    "delete_pipeline": "pipelines.delete",
    "show_schema": "pipelines.json_schema",
    "list_approvals": "approvals.list",
    "list_flow": "flow.list",
    "list_flow_runs": "flow.runs",
    "submit_runs": "bulk.submit",
    "preview_bulk": "bulk.preview",
    "begin_bulk": "bulk.begin",
    "list_bulk": "bulk.list",
    "show_bulk": "bulk.get",
    "stop_bulk": "bulk.stop",
    "list_schedules": "schedules.list",
    "preview_schedule": "schedules.preview",
    "put_schedule": "schedules.put",
    "show_schedule": "schedules.get",
    "delete_schedule": "schedules.delete",
    "pause_schedule": "schedules.pause",
    "resume_schedule": "schedules.resume",
    "trigger_schedule": "schedules.trigger",
    "show_next": "schedules.next_times",
    "list_firings": "schedules.firings",
    "list_webhooks": "webhooks.list",
    "put_webhook": "webhooks.put",
    "show_webhook": "webhooks.get",
    "delete_webhook": "webhooks.delete",
    "enable_webhook": "webhooks.enable",
    "disable_webhook": "webhooks.disable",
    "rotate_webhook_secret": "webhooks.rotate_secret",
    "test_webhook": "webhooks.test",
    "redeliver_dead": "webhooks.redeliver_dead",
    "list_deliveries": "webhooks.deliveries",
    "show_delivery": "webhooks.delivery",
    "redeliver": "webhooks.redeliver",
    "list_types": "types.list",
    "show_type": "types.get",
    "costs_by_pipeline": "costs.by_pipeline",
    "costs_by_budget": "costs.budgets",
    "saved_by_cache": "costs.saved_by_cache",
    "costs_by_kind": "costs.by_kind",
    "costs_by_node": "costs.by_node",
    "costs_by_run": "costs.by_run",
    "calls_of_run": "calls.list",
    "explain_call": "calls.explain",
    "content_of_run": "content.list",
    "list_experiments": "experiments.list",
    "report_outcome": "experiments.report_outcome",
    "roll_back": "experiments.roll_back",
    "restore": "experiments.restore",
    "list_backends": "backends.list",
    "list_rates": "backends.rates",
    "drain_backend": "backends.drain",
    "resume_backend": "backends.resume",
    "warm_backend": "backends.warm",
    "reset_backend": "backends.reset",
    "list_dead_letters": "dead_letters.list",
    "show_dead_letter": "dead_letters.get",
    "drop_dead_letter": "dead_letters.drop",
    "redrive_dead_letter": "dead_letters.redrive",
    "create_key": "keys.create",
    "list_keys": "keys.list",
    "show_own_key": "keys.own",
    "show_key": "keys.get",
    "revoke_key": "keys.revoke",
    "rotate_key": "keys.rotate",
    "list_roles": "keys.roles",
    "show_grants": "grants.get",
    "set_grants": "grants.set",
    "list_audit": "audit.list",
    "verify_audit": "audit.verify",
    "delete_data": "platform.delete_data",
    "system_health": "platform.health",
    "list_tenants": "platform.tenants",
    "list_workers": "platform.workers",
    "list_queues": "platform.queues",
    "list_partitions": "platform.partitions",
    "drain_type": "types.drain",
    "resume_type": "types.resume",
}
BY_HAND = {"follow_run", "follow_runs", "export_runs"}
"""Operations not generated: `AsyncHocket.follow` and `follow_all` cover the streams, and `runs.each`
gives the rows of an export."""
MAY_REPEAT = {
    "submit_run", "submit_runs", "retry_run", "rerun_run", "cancel_run", "validate_pipeline",
    "preview_bulk", "preview_schedule",
}  # fmt: skip
"""Operations other than reads that are idempotent. Not `apply_pipeline`: after another's version it
would make the former one a version again."""
BY_PLACE = {"content_of_run": {"run"}}
"""Optional parameters that are given by place, too: they were required in earlier releases."""
DOCUMENTS = {"apply_pipeline", "validate_pipeline"}
WIDTH = 92
"""The line width of docstrings."""
LEFT_OUT = {"X-Hocket-Tenant", "idempotency-key"}
"""Headers without a parameter: the client knows its tenant, and the idempotency key is in the body."""
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "Any"}
TO_SYNC = (
    ("The client for asyncio. `sync_client.py` is made from this file (`make docs`).",
     "The client without asyncio, made from `async_client.py` (`make docs`)."),
    ("import asyncio\nimport os\n", "import os\nimport time\n"),
    ("asyncio.sleep", "time.sleep"),
    ("from hocket.client.beside_loop import async_read_answer, async_read_event",
     "from hocket.client.live import read_event\nfrom hocket.client.requests import read_answer"),
    ("async_read_", "read_"),
    ("from contextlib import aclosing", "from contextlib import closing"),
    ("aclosing(", "closing("),
    ("async def ", "def "),
    ("async with ", "with "),
    ("async for ", "for "),
    ("await ", ""),
    ("Awaitable[Any]", "Any"),
    ("import Awaitable, Callable", "import Callable"),
    ("AsyncGenerator", "Generator"),
    ("AsyncIterator", "Iterator"),
    ("httpx2.AsyncClient", "httpx2.Client"),
    ("httpx2.AsyncBaseTransport", "httpx2.BaseTransport"),
    ("async_resources", "sync_resources"),
    ("async_of_runs", "sync_of_runs"),
    ("async_of_platform", "sync_of_platform"),
    ("for asyncio", "without asyncio"),
    ("__aenter__", "__enter__"),
    ("__aexit__", "__exit__"),
    ("aclose", "close"),
    ("aread", "read"),
    ("async_owner", "owner"),
    ("Async", ""),
)  # fmt: skip

Json = dict[str, Any]


@dataclass(slots=True)
class _Imports:
    """The imports of a generated module."""

    names: dict[str, set[str]] = field(default_factory=dict)

    def add(self, module: str, name: str) -> str:
        self.names.setdefault(module, set()).add(name)
        return name

    def lines(self) -> Iterator[str]:
        for module in sorted(self.names):
            yield f"from {module} import {', '.join(sorted(self.names[module]))}"


@dataclass(slots=True)
class _Parameter:
    name: str
    type: str
    sent_as: str
    is_required: bool

    @property
    def text(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.is_required else " | None = None")


def described() -> Json:
    """Return the OpenAPI document of an app without connections."""
    unused: Any = types.SimpleNamespace(capabilities=None, pool=None, reserved=None)
    context, book = typing.cast(Context, unused), typing.cast(KeyBook, unused)
    app: FastAPI = make_app(context, CollectorRegistry(), book)
    return app.openapi()


def async_modules(document: Json) -> Mapping[str, str]:
    """Return the modules with the asyncio methods, and the module that combines them, by file name."""
    imports = {True: _Imports(), False: _Imports()}
    methods: dict[str, list[str]] = {name: [] for name in RESOURCES}
    for path, item in document["paths"].items():
        for verb, operation in item.items():
            called = operation["operationId"]
            if not path.startswith("/v1/") or called in BY_HAND:
                continue
            resource, _, method = METHODS[called].partition(".")
            made = _method(imports[resource in OF_RUNS], verb.upper(), path, operation, method)
            methods[resource] += made
    found = {}
    for name, what, of_runs in (
        ("async_of_runs.py", "with runs", True),
        ("async_of_platform.py", "with a platform", False),
    ):
        classes = [_class(one, of) for one, of in methods.items() if (one in OF_RUNS) is of_runs]
        found[name] = _module(imports[of_runs], what, classes)
    return {**found, "async_resources.py": _all_resources()}


def _module(imports: _Imports, what: str, classes: list[str]) -> str:
    for name in ("ApiRequest", "Document", "given", "new_key", "path_of", "with_keys"):
        imports.add("hocket.client.requests", name)
    return (
        f'"""What the API can do {what}, for asyncio, made from its description (`make docs`)."""\n\n'
        "from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence\n"
        "from datetime import datetime\nfrom decimal import Decimal\nfrom typing import Any, Literal\n\n"
        + "\n".join(imports.lines())
        + "\n\nSend = Callable[[ApiRequest, Any], Awaitable[Any]]\n\n"
        + "\n\n".join(classes)
    )


def _all_resources() -> str:
    imports = _Imports()
    imports.add("hocket.client.requests", "ApiRequest")
    for name, called in RESOURCES.items():
        module = "async_of_runs" if name in OF_RUNS else "async_of_platform"
        imports.add(f"hocket.client.{module}", f"Async{called}")
    attributes = "\n".join(
        f"        self.{name} = Async{of}(send)" for name, of in RESOURCES.items()
    )
    return (
        '"""What the API can do, for asyncio, made from its description (`make docs`)."""\n\n'
        "from collections.abc import Awaitable, Callable\nfrom typing import Any\n\n"
        + "\n".join(imports.lines())
        + "\n\nSend = Callable[[ApiRequest, Any], Awaitable[Any]]\n\n"
        '\n\nclass AsyncResources:\n    """All operations, by what they are about."""\n\n'
        f"    def __init__(self, send: Send) -> None:\n{attributes}\n"
    )


def as_sync(text: str) -> str:
    """Convert a module of the asyncio client into its synchronous counterpart."""
    text = re.sub(r"AsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]", text)
    for of_async, of_sync in TO_SYNC:
        text = text.replace(of_async, of_sync)
    return re.sub(r"for (\w+) in (.*):\n +yield \1\n", r"yield from \2\n", text)


def modules() -> Mapping[str, str]:
    """Return the text of each generated file."""
    made = async_modules(described())
    client = (FOLDER / "async_client.py").read_text("utf-8")
    return {
        **{name: _formatted(text) for name, text in made.items()},
        **{name[1:]: _formatted(as_sync(text)) for name, text in made.items()},
        "sync_client.py": _formatted(as_sync(client)),
    }


def _class(name: str, methods: list[str]) -> str:
    return (
        f"class Async{RESOURCES[name]}:\n"
        f'    """`client.{name}`."""\n\n'
        "    def __init__(self, send: Send) -> None:\n        self._send = send\n\n"
        + "\n\n".join(methods)
    )


def _method(imports: _Imports, verb: str, path: str, operation: Json, name: str) -> list[str]:
    """Return the method of an operation and, if it returns pages, one that iterates over all of them."""
    sent = _sent(operation)
    fields, body = _body(imports, operation)
    answer = _answer(imports, operation)
    first = [*sent["path"], *(p for p in (*fields, *sent["query"]) if p.is_required)]
    by_place = BY_PLACE.get(operation["operationId"], set())
    first += [p for p in sent["query"] if p.name in by_place]
    then = [p for p in (*fields, *sent["query"], *sent["header"]) if not p.is_required]
    then = [p for p in then if p.name not in by_place]
    asked = [f'method="{verb}"', f"path=path_of({_path(path)})"]
    for place, called in (("query", "query"), ("header", "headers")):
        if sent[place]:
            asked.append(f"{called}={_mapping(sent[place])}")
    if body:
        asked.append(f"body={body}")
    asked += _repeats(verb, operation["operationId"])
    if any(p.name == "wait_ms" for p in fields):
        asked.append("wait_ms=wait_ms or 0")
    call = f"await self._send(ApiRequest({', '.join(asked)}), {answer})"
    text = _signature(name, first, then, answer or "None") + _docstring(operation["description"])
    if answer is not None:
        call = f"answer: {answer} = {call}\n        return answer"
    return [f"{text}        {call}\n", *_pages(imports, answer, name, first, then)]


def _repeats(verb: str, operation: str) -> Iterator[str]:
    """Yield what says of a request whether it may be sent again, and what that means."""
    if verb == "GET" or operation in MAY_REPEAT:
        yield "may_repeat=True"
    if operation == "cancel_run":
        yield "cancels=run_id"


def _mapping(parameters: list[_Parameter]) -> str:
    return "{" + ", ".join(f'"{p.sent_as}": {p.name}' for p in parameters) + "}"


def _pages(
    imports: _Imports,
    answer: str | None,
    name: str,
    first: list[_Parameter],
    then: list[_Parameter],
) -> list[str]:
    model = None if answer is None else _models().get(answer)
    if (
        model is None
        or "next" not in model.model_fields
        or not any(p.name == "after" for p in then)
    ):
        return []
    items = [n for n, f in model.model_fields.items() if get_origin(f.annotation) is tuple]
    assert len(items) == 1, (answer, items)
    item = get_args(model.model_fields[items[0]].annotation)[0]
    kind = imports.add(item.__module__, item.__name__)
    after = next(p.type for p in then if p.name == "after")
    then = [p for p in then if p.name != "after"]
    given = ", ".join(
        [*(p.name for p in first), *(f"{p.name}={p.name}" for p in then), "after=after"]
    )
    each = "each" if name == "list" else f"each_{name.removesuffix('s')}"
    each = each.replace("deliverie", "delivery")
    return [
        _signature(each, first, then, f"AsyncIterator[{kind}]")
        + f'        """Yield what `{name}` has on all its pages, `limit` at a time."""\n'
        f"        after: {after} | None = None\n        while True:\n"
        f"            page = await self.{name}({given})\n"
        f"            for one in page.{items[0]}:\n                yield one\n"
        "            if (after := page.next) is None:\n                return\n"
    ]


def _signature(name: str, first: list[_Parameter], then: list[_Parameter], answer: str) -> str:
    parameters = [
        "self",
        *(p.text for p in first),
        *(["*"] if then else []),
        *(p.text for p in then),
    ]
    return f"    async def {name}({', '.join(parameters)}) -> {answer}:\n"


def _docstring(text: str) -> str:
    lines = [
        line
        for part in text.split("\n\n")
        for line in [*wrap(part, WIDTH, break_on_hyphens=False), ""]
    ][:-1]
    if len(lines) == 1 and len(lines[0]) < 84:
        return f'        """{lines[0]}"""\n'
    return (
        '        """'
        + "\n".join([lines[0], *(f"        {line}".rstrip() for line in lines[1:])])
        + '\n        """\n'
    )


def _path(path: str) -> str:
    parts = path.removeprefix("/v1/").split("/")
    return ", ".join(_plain(p[1:-1]) if p.startswith("{") else f'"{p}"' for p in parts)


def _sent(operation: Json) -> Mapping[str, list[_Parameter]]:
    """Return the parameters of an operation, grouped by where they are sent."""
    sent: dict[str, list[_Parameter]] = {"path": [], "query": [], "header": []}
    for p in operation.get("parameters", ()):
        if p["name"] not in LEFT_OUT:
            kind = _type_of_schema(p["name"], p["schema"])
            of = _Parameter(_plain(p["name"]), kind, p["name"], bool(p.get("required")))
            sent[p["in"]].append(of)
    return sent


def _plain(name: str) -> str:
    name = name.replace("-", "_")
    return f"{name}_" if name in ("from", "class") else name


def _type_of_schema(name: str, schema: Json) -> str:
    if name == "labels":
        return "Mapping[str, str]"
    if name.endswith("_usd"):
        return "Decimal | str"
    if name == "if-match":
        return "int | str"
    if choices := schema.get("enum"):
        return f"Literal[{', '.join(repr(one) for one in choices)}]"
    if schema.get("format") == "date-time":
        return "datetime"
    return SIMPLE[schema.get("type", "string")]


def _body(imports: _Imports, operation: Json) -> tuple[list[_Parameter], str]:
    """Return the parameters that make up an operation's body, and the code that builds the body from
    them."""
    content = operation.get("requestBody", {}).get("content")
    if content is None:
        return [], ""
    if operation["operationId"] in DOCUMENTS:
        return [_Parameter("document", "Document", "", True)], "document"
    name = re.search(r"#/components/schemas/(\w+)", str(content))
    assert name is not None, operation["operationId"]
    model = _models()[name[1]]
    fields = []
    for called, of in model.model_fields.items():
        kind = _type_text(imports, of.annotation).removesuffix(" | None")
        if called.endswith("_usd"):
            kind = "Decimal | str | float"
        is_required = of.is_required() and operation["requestBody"].get("required", False)
        fields.append(_Parameter(called, kind, of.alias or called, is_required))
    called = operation["operationId"]
    pairs = [f'"{p.sent_as}": {WITH_KEYS.get((called, p.name), p.name)}' for p in fields]
    return fields, "given({" + ", ".join(pairs) + "})"


def _answer(imports: _Imports, operation: Json) -> str | None:
    names: list[str] = []
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            schema = answer.get("content", {}).get("application/json", {}).get("schema")
            found = re.findall(r"#/components/schemas/(\w+)", str(schema))
            names += [name for name in found if name not in names]
            if schema and not found:
                return "dict[str, Any]"
    for name in names:
        imports.add(_models()[name].__module__, name)
    return " | ".join(sorted(names)) or None


@cache
def _models() -> Mapping[str, type[BaseModel]]:
    """Return the models of the API by name."""
    found: dict[str, type[BaseModel]] = {}
    for module in pkgutil.walk_packages(hocket.schemas.__path__, "hocket.schemas."):
        if module.name == "hocket.schemas.messages":
            continue  # messages over NATS
        found |= {
            name: one
            for name, one in vars(importlib.import_module(module.name)).items()
            if isinstance(one, type)
            and issubclass(one, BaseModel)
            and one.__module__ == module.name
        }
    return found


def _type_text(imports: _Imports, annotation: Any) -> str:
    """Return a type annotation as source code."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(imports, inner[0])
    if origin in (Union, types.UnionType):
        texts = [_type_text(imports, one) for one in inner if one is not type(None)]
        return " | ".join([*dict.fromkeys(texts), *(["None"] if type(None) in inner else [])])
    if origin is Literal:
        return f"Literal[{', '.join(repr(one) for one in inner)}]"
    if origin in (tuple, list, frozenset):
        return f"Sequence[{_type_text(imports, inner[0])}]"
    if origin is dict or (origin is not None and issubclass(origin, Mapping)):
        return f"Mapping[{_type_text(imports, inner[0])}, {_type_text(imports, inner[1])}]"
    return _class_text(imports, annotation)


def _class_text(imports: _Imports, kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"Literal[{', '.join(repr(one.value) for one in kind)}]"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return imports.add(kind.__module__, kind.__name__) + " | Mapping[str, Any]"
    return "datetime" if kind is AwareDatetime else getattr(kind, "__name__", "Any")


def _formatted(text: str) -> str:
    """Return code formatted by the project's formatter."""
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "-q", "--fix", "--select", "I,F401"], ["format", "-q"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", str(FOLDER / "made.py"), "-"],
            input=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
        text = done.stdout
    return text


def main() -> None:
    """Write the files."""
    for name, text in modules().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
