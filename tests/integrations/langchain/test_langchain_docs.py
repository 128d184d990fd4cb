"""The examples of docs/langchain.md, run from top to bottom as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.globals import set_llm_cache

from semcache import SemanticCache
from tests.patience import PATIENT, defaults
from tests.upstream import Behaviour, Upstream

PAGE = Path(__file__).parents[3] / "docs" / "langchain.md"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_no_example_is_longer_than_ten_lines() -> None:
    assert len(examples()) >= 9
    assert all(len([line for line in example.splitlines() if line.strip()]) <= 10 for example in examples())


def test_the_examples_run(upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for values in defaults():
        monkeypatch.setitem(values, "policy", PATIENT)
    names: dict[str, Any] = {"__name__": "docs"}
    try:
        for example in examples():
            upstream.always(Behaviour(text='{"name": "Paris"}') if "JSON" in example else Behaviour())
            exec(compile(example, str(PAGE), "exec"), names)  # our own page
            if "cache" in names and "warm" not in names:
                names["warm"] = [names["cache"].put("Is the encoder there?", "Yes.") for _ in range(2)]
        assert names["again"].content == names["first"].content
        assert names["again"].response_metadata["semcache"]["match"] == "exact"
        assert names["vectors"][0] == names["vectors"][2]
    finally:
        set_llm_cache(None)
        for value in names.values():
            if isinstance(value, SemanticCache):
                value.close()
