"""The extra `st`: a sentence-transformers model, from the folder that is given."""

import sys

from semcache.encoders.sentence_transformers import SentenceTransformerEncoder

encoder = SentenceTransformerEncoder(sys.argv[1])
one, other, far = encoder.encode(["Reset my password", "Reset my passwords", "The sky is blue"])
assert one @ other > 0.9 > 0.5 > one @ far
print("used")
