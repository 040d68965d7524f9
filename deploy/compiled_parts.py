"""Compiles what takes time for each step in coordinators and workers with mypyc.

    python deploy/compiled_parts.py FOLDER [--replaceable NAME ...]

puts into FOLDER what a wheel has beside the sources: a library for each module, one that they share, and
`hocket/kit/compiled/manifest.json`, which names the source that each was made of
(`services/hocket/kit/compiled/`). The sources are the same; only the docstrings of exceptions, which are
the texts of our errors and which mypyc drops, are put back at the end of each module.

Compiled code calls compiled functions without looking them up, so that nothing can take their place.
Functions and methods of the names in `--replaceable` are compiled so that they are looked up: that is
for the tests that put something in their place, and for nothing that is installed.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("schemas", "services", "workers")
COMPILED = (
    "coordinator/core",
    "coordinator/dispatch/bundles.py",
    "coordinator/dispatch/dispatcher.py",
    "coordinator/dispatch/step_publisher.py",
    "coordinator/dispatch/workload.py",
    "coordinator/intake/acceptance_posts.py",
    "coordinator/intake/admission_queue.py",
    "coordinator/intake/arrival.py",
    "coordinator/intake/consumer.py",
    "coordinator/intake/task_acceptance.py",
    "coordinator/intake/task_admission.py",
    "coordinator/intake/task_message.py",
    "coordinator/intake/tasks_in_hand.py",
    "coordinator/intake/waiting_tenants.py",
    "coordinator/partition/command_executor.py",
    "coordinator/partition/decision_recorder.py",
    "coordinator/partition/events/attempt_reports.py",
    "coordinator/partition/events/event_application.py",
    "coordinator/partition/events/event_handler.py",
    "coordinator/partition/events/event_reader.py",
    "coordinator/partition/events/log_posts.py",
    "coordinator/partition/events/log_reader.py",
    "coordinator/partition/events/pending_events.py",
    "coordinator/partition/measurements.py",
    "coordinator/partition/runs/change_publisher.py",
    "coordinator/partition/runs/end_publisher.py",
    "coordinator/partition/runs/known_runs.py",
    "coordinator/partition/runs/run_acceptance.py",
    "coordinator/partition/runs/run_cache.py",
    "coordinator/partition/runs/run_notifier.py",
    "coordinator/partition/runs/task_acknowledgement.py",
    "coordinator/partition/timers.py",
    "coordinator/partition/turns.py",
    "coordinator/storage/commit_batch.py",
    "coordinator/storage/commit_schedule.py",
    "coordinator/storage/committer.py",
    "coordinator/storage/pending_changes.py",
    "coordinator/storage/pipelines/duration_stats.py",
    "coordinator/storage/tenure.py",
    "coordinator/storage/unwritten_changes.py",
    "kit/logs/tallies.py",
    "kit/nats/cloudevents.py",
    "kit/nats/connection/commands.py",
    "kit/nats/connection/durable_publisher.py",
    "kit/nats/connection/socket_writer.py",
    "kit/nats/consumers/delivery.py",
    "kit/nats/consumers/pull_consumer.py",
    "kit/nats/protocol.py",
    "kit/process/clock.py",
    "schemas/capabilities.py",
    "schemas/ids.py",
    "schemas/json_schema",
    "schemas/pipeline/input_defaults.py",
    "schemas/subjects.py",
    "schemas/templates/budget.py",
    "workers/runtime/execution/alarms.py",
    "workers/runtime/execution/attempt.py",
    "workers/runtime/execution/attempts.py",
    "workers/runtime/execution/parts.py",
    "workers/runtime/execution/pool.py",
    "workers/runtime/execution/runner.py",
    "workers/runtime/execution/slots.py",
    "workers/runtime/intake/arrivals.py",
    "workers/runtime/intake/bundles.py",
    "workers/runtime/results/reporter.py",
    "workers/runtime/transport/acks.py",
    "workers/runtime/transport/fetching.py",
    "workers/runtime/transport/held_steps.py",
    "workers/runtime/transport/lanes.py",
    "workers/runtime/transport/outbox.py",
    "workers/runtime/transport/pull.py",
    "workers/runtime/transport/settlement.py",
    "workers/runtime/transport/step_message.py",
    "workers/runtime/values/large_values.py",
    "workers/runtime/values/references.py",
)
"""Modules and packages within `hocket`. Not here: structs of msgspec (they read their annotations, which
compiled classes do not keep), what takes values of any type (for compiled code an int is no `float |
None`), and the bus and the store, in whose place benches and tests put others."""
NOT_COMPILED = (
    "coordinator/core/run/constructs/reuse.py",
    "coordinator/core/run/state/restore.py",
)
"""Modules in those packages that stay as they are: they work in threads on very large values, like
`schemas/checks/plain_json.py`. A thread leaves the interpreter to others between the steps of
interpreted code only, and would stop the loop for seconds."""
MANIFEST = Path("hocket") / "kit" / "compiled" / "manifest.json"
BUILD = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext

class SideBySide(build_ext):
    def build_extensions(self):
        alone = self.compiler.compile
        def compiled(sources, *args, **how):
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                made = threads.map(lambda one: alone([one], *args, **how), sources)
                return [name for names in made for name in names]
        self.compiler.compile = compiled
        super().build_extensions()

config, *modules = sys.argv[1:]
given = ["--config-file", config, *modules]
found = mypycify(given, opt_level="2", debug_level="0", multi_file=True)
setup(
    name="hocket", packages=[], ext_modules=found,
    script_args=["build_ext", "--inplace"], cmdclass={"build_ext": SideBySide},
)
"""
"""A C file for each module, several of which are compiled at a time."""
REPLACEABLE = """
from collections.abc import Callable as _Callable
from typing import Any as _Any, TypeVar as _TypeVar

_Function = _TypeVar("_Function", bound=_Callable[..., _Any])

def _replaceable(function: _Function) -> _Function:
    return function

"""
"""A decorator that does nothing: a decorated function is looked up by its name."""
NOT_DECORATED = {"abstractmethod", "classmethod", "overload", "property", "setter", "staticmethod"}


def sources(top: Path, names: Sequence[str] = COMPILED) -> Iterator[Path]:
    """Yield the modules that are compiled, of the folder that contains `hocket`."""
    plain = {top / "hocket" / name for name in NOT_COMPILED}
    for name in names:
        place = top / "hocket" / name
        found = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        yield from (one for one in found if one.name != "__init__.py" and one not in plain)


def with_error_texts(source: str) -> str:
    """Return a module's source so that its exceptions have their docstrings when it is compiled: each
    class with a base class may be one."""
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    texts = ((one.name, ast.get_docstring(one, False)) for one in classes if one.bases)
    return source + "".join(
        f'setattr({name}, "__doc__", {text!r})\n' for name, text in texts if text is not None
    )


def with_replaceable(source: str, names: Collection[str]) -> str:
    """Return a module's source with functions of these names compiled so that they are looked up."""
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found = []
    for node in (*tree.body, *(inner for one in classes for inner in one.body)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
            decorators = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
            if not decorators & NOT_DECORATED:
                found.append(min(one.lineno for one in (node, *node.decorator_list)))
    for number in sorted(found, reverse=True):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        lines.insert(number - 1, f"{indent}@_replaceable\n")
    first = next(one for one in tree.body if not isinstance(one, ast.Expr))
    if found:
        lines.insert(first.lineno - 1, REPLACEABLE)
    return "".join(lines)


def compile_into(folder: Path, replaceable: Collection[str] = ()) -> None:
    """Compile the modules; raise CalledProcessError where that fails."""
    sys.path[:0] = [str(ROOT / room) for room in ROOMS]
    from hocket.kit.compiled import digest_of

    with tempfile.TemporaryDirectory(prefix="hocket-mypyc-") as name:
        top = Path(name)
        for room in ROOMS:
            shutil.copytree(
                ROOT / room / "hocket",
                top / "hocket",
                ignore=shutil.ignore_patterns("__pycache__", "*.so"),
                dirs_exist_ok=True,
            )
        modules, digests = [], {}
        for source in sources(top):
            module = str(source.relative_to(top))
            text = source.read_text("utf-8")
            digests[module] = digest_of(text.encode())
            source.write_text(with_error_texts(with_replaceable(text, replaceable)), "utf-8")
            modules.append(module)
        subprocess.run(
            [sys.executable, "-c", BUILD, ROOT / "pyproject.toml", *modules],
            cwd=top,
            env={**os.environ, "MYPYPATH": str(top), "PYTHONPATH": str(top)},
            check=True,
        )
        for library in (*top.glob("*.so"), *(top / "hocket").rglob("*.so")):
            place = folder / library.relative_to(top)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
    manifest = folder / MANIFEST
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps(digests, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--replaceable", nargs="*", default=())
    given = parser.parse_args()
    try:
        compile_into(given.folder, frozenset(given.replaceable))
    except (subprocess.CalledProcessError, ImportError, OSError) as error:
        sys.exit(f"not compiled: {error}")
