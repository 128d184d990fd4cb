"""The extra `plots`: the frontier of a few labelled pairs becomes a picture."""

import json
import subprocess
from pathlib import Path

pairs = [
    ("How do I reset my password?", "How can I reset my password?", 1),
    ("How do I reset my password?", "How do I reset my username?", 0),
    ("When do you open?", "At what time do you open?", 1),
    ("When do you open?", "When do you close?", 0),
]
lines = (json.dumps({"a": a, "b": b, "same": same, "lang": "en", "source": "mine"}) for a, b, same in pairs)
Path("pairs.jsonl").write_text("\n".join(lines), "utf-8")
subprocess.run(["semcache", "evaluate", "pairs.jsonl", "pairs.jsonl", "--frontier", "curve.png"], check=True)
assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
print("used")
