"""Size budgets: a module has at most 600 lines (400 wanted), a function 80, a signature 6 parameters."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODULE_LINES = 600
MODULE_LINES_WANTED = 400
FUNCTION_LINES = 80
PARAMETERS = 6
FORBIDDEN_NAMES = frozenset({"utils", "helpers", "manager", "common", "misc"})


@dataclass(frozen=True, slots=True)
class Size:
    """One measured thing; ``limit`` is what fails the build."""

    where: str
    what: str
    measured: int
    limit: int


def module_sizes(path: Path) -> Iterator[Size]:
    """The module, then each function in it. Docstrings count, decorators do not; ``self`` and ``cls`` are no parameters."""
    text = path.read_text(encoding="utf-8")
    yield length(path)
    tree = ast.parse(text)
    methods = {item for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = f"{path}:{node.lineno} {node.name}"
            yield Size(where, "lines", (node.end_lineno or node.lineno) - node.lineno + 1, FUNCTION_LINES)
            yield Size(where, "parameters", _parameters(node, method=node in methods), PARAMETERS)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> int:
    static = any(isinstance(decorator, ast.Name) and decorator.id == "staticmethod" for decorator in node.decorator_list)
    count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
    return count - (1 if method and not static else 0)


def length(path: Path) -> Size:
    """The module alone."""
    return Size(str(path), "lines", path.read_text(encoding="utf-8").count("\n"), MODULE_LINES)


def measure(root: Path) -> list[Size]:
    """Every size under ``root``'s source folders."""
    sizes: list[Size] = []
    for folder in ("src", "tools", "scripts", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            sizes.extend(module_sizes(path))
    for folder, pattern in (("tests", "*.py"), ("web/src", "*.ts"), ("web/src", "*.tsx"), ("web/src", "*.css")):
        sizes.extend(length(path) for path in sorted((root / folder).rglob(pattern)))
    return sizes


def main() -> int:
    sizes = measure(Path())
    misnamed = [path for path in sorted(Path("src").rglob("*.py")) if path.stem in FORBIDDEN_NAMES]
    over = [size for size in sizes if size.measured > size.limit]
    for size in over:
        print(f"{size.where}: {size.measured} {size.what}, at most {size.limit}")
    for path in misnamed:
        print(f"{path}: name the noun of the domain")
    modules = [size for size in sizes if size.limit == MODULE_LINES]
    large = [size for size in modules if size.measured > MODULE_LINES_WANTED]
    for size in large:
        print(f"{size.where}: {size.measured} lines, {MODULE_LINES_WANTED} wanted", file=sys.stderr)
    lines = sum(size.measured for size in modules)
    print(f"size: {len(modules)} modules, {lines} lines, {len(large)} above {MODULE_LINES_WANTED}, {len(over)} over budget")
    return 1 if over or misnamed else 0


if __name__ == "__main__":
    sys.exit(main())
