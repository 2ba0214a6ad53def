"""One word per idea: the design's words are used in identifiers, and their synonyms are not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.repository import SOURCE

INSTEAD = {
    "org": "tenant",
    "organisation": "tenant",
    "organization": "tenant",
    "workspace": "tenant",
    "dialog": "conversation",
    "dialogue": "conversation",
    "job": "generation",
    "jobs": "generations",
    "cluster": "pool",
    "deployment": "pool",
    "tier": "plan",
    "iteration": "step",
}
FOREIGN = frozenset({"service_tier", "HostTier"})
"""A field of OpenAI's shapes, and the prefix cache's second tier, which the design calls so."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Names this module gives: classes, functions, parameters, variables, fields."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def synonyms(text: str) -> dict[str, str]:
    """Offending identifiers, each with the word to use."""
    found: dict[str, str] = {}
    for name in identifiers(ast.parse(text)):
        for part in _CAMEL.sub("_", name).lower().split("_"):
            if part in INSTEAD and name not in FOREIGN:
                found[name] = INSTEAD[part]
    return found


def test_identifiers_use_the_designs_words() -> None:
    found = {str(path.relative_to(SOURCE)): synonyms(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_synonym_is_caught() -> None:
    planted = "class JobRunner:\n    def run(self, org_id):\n        self.cluster_size = orgy = 1"
    assert synonyms(planted) == {"JobRunner": "generation", "org_id": "tenant", "cluster_size": "pool"}


def test_every_module_says_what_it_is() -> None:
    silent = [str(path) for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert silent == []
