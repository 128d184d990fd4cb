"""The extra `onnx`: an exported folder, which is given."""

import sys
from pathlib import Path

from semcache.encoders.onnx import OnnxEncoder

encoder = OnnxEncoder(Path(sys.argv[1]))
one, other, far = encoder.encode(["Reset my password", "Reset my passwords", "The sky is blue"])
assert one @ other > 0.9 > 0.5 > one @ far
print("used")
