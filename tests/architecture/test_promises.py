"""What others rely on exists in the code: metrics, error codes, commands; and the lock files say what they must."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement

from antiphon.cli import main
from antiphon.core.errors import GenerationFailed, Refused
from antiphon.core.telemetry import METRICS
from tests.architecture.repository import ROOT, SOURCE, tracked

METRICS_PROMISED = {
    "antiphon_requests_running": set(),
    "antiphon_requests_waiting": {"band"},
    "antiphon_kv_blocks": {"state"},
    "antiphon_time_to_first_token_seconds": set(),
    "antiphon_inter_token_latency_seconds": set(),
    "antiphon_queue_seconds": set(),
    "antiphon_prompt_tokens_total": set(),
    "antiphon_cached_tokens_total": set(),
    "antiphon_output_tokens_total": set(),
    "antiphon_wasted_tokens_total": set(),
    "antiphon_unwatched_tokens_total": set(),
    "antiphon_accelerator_seconds_total": set(),
    "antiphon_preemptions_total": set(),
    "antiphon_generations_total": {"status"},
    "antiphon_shed_total": {"code"},
    "antiphon_downgrades_total": set(),
    "antiphon_streams_open": set(),
    "antiphon_step_seconds": {"part"},
    "antiphon_event_loop_lag_seconds": set(),
    "antiphon_cost_total": set(),
    # Beyond the contract: the rate of regeneration.
    "antiphon_turns_total": {"kind"},
    "antiphon_cached_answers_total": {"pool"},
}
REFUSALS_PROMISED = """
    bad_json invalid_text bad_cursor unauthenticated forbidden not_found parent_streaming conflict model_gone stale_version
    body_too_large message_too_large prompt_too_long media_type invalid_request idempotency_mismatch rate_limited quota_exhausted
    concurrency_limited high_demand no_capacity draining store_unavailable disk_full
"""
FAILURES_PROMISED = {"queue_timeout", "engine_failed", "interrupted", "moderated", "deleted"}


def below(root: type) -> Iterator[type]:
    for child in root.__subclasses__():
        yield child
        yield from below(child)


def commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every command line this parser takes, without flags."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield name
                yield from (f"{name} {deeper}" for deeper in commands(child))


def test_every_promised_metric_is_declared() -> None:
    declared = {metric.name: set(metric.labels) for metric in METRICS}
    assert declared.keys() == METRICS_PROMISED.keys()
    assert {name: labels - declared[name] for name, labels in METRICS_PROMISED.items() if labels - declared[name]} == {}
    assert set().union(*declared.values()) <= {"pool", "kind", "replica", "plan", "band", "state", "status", "code", "part"}


def test_no_metric_is_named_outside_its_declaration() -> None:
    strays = {
        path.name: found
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "telemetry.py"
        and (found := re.findall(r"\"antiphon_[a-z_]+(?:_total|_seconds)\"", path.read_text(encoding="utf-8")))
    }
    assert strays == {}


def test_every_promised_code_is_an_error_and_no_other_is() -> None:
    assert {error.code for error in below(Refused)} == set(REFUSALS_PROMISED.split())
    assert {error.code for error in below(GenerationFailed)} == FAILURES_PROMISED


def test_promised_commands_exist() -> None:
    promised = """
        serve, chat, link, doctor, version, keys create, keys list, keys revoke, users create, users list, users disable,
        tenants create, tenants list, models list, models pull, models add, models remove
    """
    assert {name.strip() for name in promised.split(",")} <= set(commands(main._parser()))


def test_documents_name_only_commands_that_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    known = set(commands(main._parser()))
    for document in (ROOT / "README.md", *tracked("docs/**/*.md")):
        text = document.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
        assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) <= targets, document.name
        for line in re.findall(r"\bantiphon ([a-z]+(?: [a-z]+)?)", code):
            assert line in known or line.split()[0] in known, f"{document.name}: antiphon {line}"


def test_lock_files_hold_versions_and_hashes_but_no_address() -> None:
    for lock in sorted(ROOT.glob("requirements*.lock")):
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text, lock.name
        assert not re.search(r"^\s*-", text.replace("    --hash=", "hash="), re.MULTILINE), f"{lock.name} has options"
        for entry in re.split(r"\n(?=\S)", text.strip()):
            assert "==" in entry.splitlines()[0], entry
            assert "--hash=sha256:" in entry, entry
    for lock in tracked("**/package-lock.json", "package-lock.json"):
        text = lock.read_text(encoding="utf-8")
        assert '"resolved"' not in text, lock.name
        assert '"integrity"' in text, lock.name


@pytest.mark.parametrize(("lock", "groups"), [("requirements.lock", ["build"]), ("requirements-dev.lock", ["build", "dev"])])
def test_lock_files_fit_the_project(lock: str, groups: list[str]) -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*pyproject["project"]["dependencies"]]
    for group in groups:
        wanted += [entry for entry in pyproject["dependency-groups"][group] if isinstance(entry, str)]
    locked: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ]+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE):
        locked.setdefault(name.lower().replace("_", "-"), []).append(version)
    for line in wanted:
        requirement = Requirement(line)
        versions = locked.get(requirement.name.lower().replace("_", "-"), [])
        assert versions, f"{line} is not in {lock}: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), f"{line} against {versions} in {lock}: make lock"


def test_both_lock_files_agree() -> None:
    runtime = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    dev = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    pinned = re.compile(r"^[^\s;]+==[^\s;]+", re.MULTILINE)
    assert set(pinned.findall(runtime)) <= set(pinned.findall(dev))


def test_the_base_stays_small() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert len(pyproject["project"]["dependencies"]) < 25
    assert pyproject["project"]["optional-dependencies"].keys() == {"postgres", "redis", "kafka", "files", "oidc", "otel"}


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_nothing_that_ships_names_a_place_of_one_machine() -> None:
    place = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/")
    for path in tracked("*.py", "*.toml", "*.md", "*.json", "*.ts", "*.tsx", "Makefile", ".ci/*"):
        if "tests" not in path.relative_to(ROOT).parts:
            assert not place.search(path.read_text(encoding="utf-8")), path
