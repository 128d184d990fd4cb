"""The extra `openai`: the SDK over a cache, against the upstream whose URL is given."""

import sys

from openai import OpenAI

from openai_semcache import wrap_openai
from semcache import Policy, SemanticCache

with SemanticCache.open("memory://", policy=Policy(deadline=10.0)) as cache:
    client = wrap_openai(OpenAI(api_key="k", base_url=sys.argv[1]), cache)
    question = [{"role": "user", "content": "How do I reset my password?"}]
    first, again = (
        client.chat.completions.create(model="m", messages=question).choices[0].message.content
        for _ in range(2)
    )
    assert first == again
print("used")
