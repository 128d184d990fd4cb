"""The examples of docs/openai.md, run from top to bottom as they stand there, against a local upstream."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENT, defaults
from tests.upstream import Behaviour, Upstream

PAGE = Path(__file__).parents[3] / "docs" / "openai.md"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_examples_of_the_page_run(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for values in defaults():
        monkeypatch.setitem(values, "policy", PATIENT)
    names: dict[str, Any] = {"__name__": "page"}
    try:
        for example in examples():
            structured = "response_model=" in example
            upstream.always(Behaviour(text='{"name": "Paris"}') if structured else Behaviour())
            exec(compile(example, str(PAGE), "exec"), names)  # our own page
            if "warm" not in names:  # the first put loads the encoder, which may take longer than a put may
                names["warm"] = [names["cache"].put("Is the encoder there?", "Yes.") for _ in range(2)]
        assert upstream.count == 7
        assert names["city"].name == "Paris"
        assert names["text"] == names["first"].choices[0].message.content
    finally:
        for name in ("http", "client", "cache"):
            if name in names:
                names[name].close()


def test_no_example_is_longer_than_ten_lines() -> None:
    assert len(examples()) >= 9
    assert all(len([line for line in example.splitlines() if line.strip()]) <= 10 for example in examples())
