"""Imports and exports over HTTP on a fresh SQLite store: how long 5,000 conversations take, and what it does to the server."""

from __future__ import annotations

import http.client
import io
import json
import random
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import Report, options, percentile, progress
from benchmarks.served import Served, served

CONFIG = '[[pools]]\nname = "small"\nmodel = "reference"\nengine = "reference"\n'
CONVERSATIONS, CONVERSATIONS_QUICK = 5_000, 1_000
MESSAGES = 20
WORDS = ("ferry", "Norway", "leaves", "seven", "train", "late", "because", "snow", "nobody", "expected", "May", "列車", "船", "と")
BOUNDARY = "f7c2b1a90d"
POLL_S = 0.05


def conversation(number: int, noise: random.Random) -> dict[str, object]:
    """One of ChatGPT's: a question and its answer by turns, a regenerated answer at the end, about 300 characters a message."""
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    parent = "root"
    for place in range(MESSAGES):
        name = f"n{place}"
        mapping[name] = {
            "id": name,
            "parent": "n18" if place == MESSAGES - 1 else parent,
            "children": [],
            "message": {
                "id": name,
                "author": {"role": "assistant" if place % 2 else "user", "metadata": {}},
                "create_time": 1_700_000_000 + number * 100 + place,
                "content": {"content_type": "text", "parts": [" ".join(noise.choices(WORDS, k=60))]},
                "status": "finished_successfully",
                "metadata": {"model_slug": "gpt-4o"} if place % 2 else {},
            },
        }
        parent = name
    return {
        "conversation_id": f"c{number}",
        "title": f"Chat {number}",
        "mapping": mapping,
        "current_node": "n19",
        "create_time": 1_700_000_000,
    }


def export_file(count: int, seed: int) -> bytes:
    """ChatGPT's ZIP, a hundred conversations a file."""
    noise = random.Random(seed)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for start in range(0, count, 100):
            some = [conversation(number, noise) for number in range(start, min(start + 100, count))]
            archive.writestr(f"conversations-{start // 100:03}.json", json.dumps(some))
    return packed.getvalue()


def form_of(content: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="export.zip"\r\n\r\n'.encode()
    return head + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def upload(server: Served, content: bytes) -> tuple[float, dict[str, object]]:
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    connection = http.client.HTTPConnection(*server.address, timeout=600)
    body = form_of(content)
    start = time.perf_counter()
    connection.request("POST", "/v1/import", body, headers)
    answer = json.loads(connection.getresponse().read())
    return time.perf_counter() - start, answer


def download(server: Served, path: str) -> tuple[float, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=600)
    start = time.perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {server.key}"})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content[:200]
    return time.perf_counter() - start, content


def rss_mb(server: Served) -> float:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


class Watcher(threading.Thread):
    """While the import runs: how long the sidebar takes for somebody else's requests, and the server's memory at its height."""

    def __init__(self, server: Served) -> None:
        super().__init__(daemon=True)
        self.waits_ms: list[float] = []
        self.peak_mb = 0.0
        self._server = server
        self._done = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection(*self._server.address, timeout=60)
        while not self._done.is_set():
            start = time.perf_counter()
            connection.request("GET", "/v1/conversations?limit=30", headers={"Authorization": f"Bearer {self._server.key}"})
            connection.getresponse().read()
            self.waits_ms.append((time.perf_counter() - start) * 1000)
            self.peak_mb = max(self.peak_mb, rss_mb(self._server))
            time.sleep(POLL_S)

    def stop(self) -> None:
        self._done.set()
        self.join()


def measure(report: Report, *, quick: bool, seed: int) -> Iterator[str]:
    """Fills ``report``; yields a line of progress after each step."""
    count = CONVERSATIONS_QUICK if quick else CONVERSATIONS
    content = export_file(count, seed)
    yield f"{count} conversations, {count * MESSAGES} messages, {len(content) >> 20} MiB packed"
    with served(CONFIG) as server:
        before_mb = rss_mb(server)
        watcher = Watcher(server)
        watcher.start()
        seconds, answer = upload(server, content)
        watcher.stop()
        assert answer["imported"] == count, {name: answer.get(name) for name in ("imported", "skipped", "failed")}
        yield f"imported in {seconds:.1f} s"
        repeat_s, again = upload(server, content)
        assert again["skipped"] == count, again
        yield f"again, nothing new, in {repeat_s:.1f} s"
        export_s, exported = download(server, "/v1/export?format=antiphon")
        yield f"exported {len(exported) >> 20} MiB in {export_s:.1f} s"
        search_s, _ = download(server, "/v1/conversations?limit=100")
        report.n = count
        report.results = {
            "import_s": round(seconds, 2),
            "imported_per_s": round(count / seconds, 1),
            "repeat_s": round(repeat_s, 2),
            "export_s": round(export_s, 2),
            "sidebar_after_ms": round(search_s * 1000, 1),
            "sidebar_meanwhile_ms_p95": round(percentile(watcher.waits_ms, 0.95), 1),
            "memory_added_mb": round(watcher.peak_mb - before_mb, 1),
            "database_mb": round((server.data / "antiphon.db").stat().st_size / 1e6, 1),
        }


def main() -> int:
    asked = options("transfer")
    report = Report("transfer", "reference", asked.seed)
    for line in measure(report, quick=asked.quick, seed=asked.seed):
        progress(line)
    report.print_json()
    return 0


if __name__ == "__main__":
    sys.exit(main())
