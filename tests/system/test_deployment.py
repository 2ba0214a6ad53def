"""What is in ``deploy/`` as an administrator would use it: the site in a real nginx, and what can be known of the other files."""

from __future__ import annotations

import configparser
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from antiphon.app.config import Flags, load_config
from antiphon.edge.routes.health import PIECES_APART_S
from antiphon.orchestrator.settings import Timing
from tests.system.caddy import caddy
from tests.system.caddy import missing_programs as missing_caddy
from tests.system.nginx import Proxy, missing_programs, nginx
from tests.system.served import Server, reference_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NAME = "chat.example.com"


@pytest.fixture
def server(tmp_path: Path, free_port: int) -> Iterator[Server]:
    """One that is reached under a name of the internet."""
    server = Server(tmp_path / "data", reference_config(extra=f'[server]\npublic_url = "https://{NAME}"\n'), port=free_port)
    server.start()
    yield server
    server.end()


@pytest.mark.system
@pytest.mark.timeout(120)
def test_the_site_for_nginx(server: Server, tmp_path: Path) -> None:
    missing = missing_programs()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path / "nginx"
    folder.mkdir()
    with nginx(folder, f"http://127.0.0.1:{server.port}", (DEPLOY / "nginx.conf").read_text()) as proxy:
        check_site(proxy, server, tmp_path)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(120)
def test_the_site_for_caddy(server: Server, tmp_path: Path) -> None:
    missing = missing_caddy()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path / "caddy"
    folder.mkdir()
    with caddy(folder, f"http://127.0.0.1:{server.port}", (DEPLOY / "Caddyfile").read_text(), NAME) as proxy:
        check_site(proxy, server, tmp_path)


def check_site(proxy: Proxy, server: Server, tmp_path: Path) -> None:
    """Sent to https, signed in with a cookie for https alone, streams that are not held back, uploads as large as ours may be."""
    assert server.url == f"https://{NAME}", "links lead to the address that people use"
    port, http = urlsplit(proxy.https).port, urlsplit(proxy.http).port
    found = ["--resolve", f"{NAME}:{port}:127.0.0.1", "--resolve", f"{NAME}:{http}:127.0.0.1"]
    base = f"https://{NAME}:{port}"

    def curl(*flags: str) -> str:
        command = ["curl", "--silent", "--insecure", "--include", "--no-buffer", *found, *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout

    assert re.search(rf"location: https://{NAME}(:{port})?/x\n", curl(f"http://{NAME}:{http}/x").lower())
    signed_in = curl("--http2", f"{base}/v1/session", "--json", f'{{"token": "{server.link.partition("token=")[2]}"}}')
    assert signed_in.startswith("HTTP/2 204")
    assert "set-cookie: __Host-antiphon_session=" in signed_in and "; Secure" in signed_in
    assert "strict-transport-security" in signed_in
    stream = ["curl", "--silent", "--insecure", "--no-buffer", "--http2", *found, f"{base}/healthz/stream"]
    assert any(arrive_apart(stream) for _ in range(3)), "a reader who slept finds both, so one look is not enough"
    large = tmp_path / "large.zip"
    large.write_bytes(b"PK" + bytes(5_000_000))
    answer = curl(f"{base}/v1/import", "--header", f"Authorization: Bearer {server.key()}", "--form", f"file=@{large}")
    assert "HTTP/2 422" in answer, "it was read: the server's own bounds hold, not the proxy's"


def arrive_apart(command: list[str]) -> bool:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        began = time.monotonic()
        process.stdout.read()
        return time.monotonic() - began > PIECES_APART_S / 2


def test_the_example_configuration_is_one() -> None:
    config = load_config(Flags(config=DEPLOY / "antiphon.toml"), {"HOME": "/home/ada"})
    assert config.pools
    assert tomllib.loads((DEPLOY / "antiphon.toml").read_text())


def test_the_unit_gives_time_to_drain_and_no_rights() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read(DEPLOY / "antiphon.service")
    service = unit["Service"]
    assert service["User"] != "root" and service["NoNewPrivileges"] == "yes" and service["CapabilityBoundingSet"] == ""
    assert int(service["TimeoutStopSec"]) > Timing().drain_seconds
    assert service["RestartPreventExitStatus"] == "2"


def test_containers_run_as_nobody_and_have_time_to_drain() -> None:
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    last_stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM")) :]
    (user,) = [line.split()[1] for line in last_stage if line.startswith("USER")]
    assert user not in {"0", "root"}
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    server = compose["services"]["antiphon"]
    assert int(server["stop_grace_period"].rstrip("s")) > Timing().drain_seconds
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    environment = {name: value.partition(":-")[2].rstrip("}") or value for name, value in server["environment"].items()}
    config = load_config(Flags(), {"HOME": "/home/ada", **environment})
    assert (config.server.public_url, config.limits.scheme) == ("http://localhost:8484", "redis")
    database = compose["services"]["postgres"]
    user, name = (database["environment"][f"POSTGRES_{what}"] for what in ("USER", "DB"))
    assert config.store.place == f"postgresql://{user}@postgres/{name}"
    assert server["environment"]["PGPASSWORD"] == database["environment"]["POSTGRES_PASSWORD"]
    assert server["depends_on"].keys() == {"postgres", "redis"}
    assert "ports" not in database
    mounted = [volume.partition(":")[0] for one in compose["services"].values() for volume in one["volumes"]]
    assert sorted(mounted) == sorted(compose["volumes"])
    assert "psycopg-binary==" in (ROOT / "requirements-extras.lock").read_text(), "what the image installs"
