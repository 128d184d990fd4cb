"""A FAQ bot on the command line, with thumbs. Three people's thumbs-down withdraw an answer for everybody.

    python examples/faq_bot.py --user ann

Its "model" is the Python FAQ that ships with semcache, by exact wording: put your own call into `ask_model`.
"""

import argparse

from semcache import CacheRequest, Hit, Policy, RateLimitedError, Response, SemanticCache
from semcache.sample import load_sample

FAQ = {question.question: question.answer for question in load_sample()}


def ask_model(request: CacheRequest) -> Response:
    """Answer as a slow and expensive model would."""
    answer = FAQ.get(request.prompt)
    if answer is None:  # `error` keeps it from being stored
        return Response("I don't know that. Try: Are there any books on Python?", error=True)
    return Response(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--user", default="ann", help="who asks; three different ones can withdraw an answer")
    parser.add_argument("--redis", help="redis://…; without it an embedded server keeps the answers")
    options = parser.parse_args()

    # A person can wait for a cold start: the first question loads the encoder.
    with SemanticCache.open(options.redis, namespace="faq-bot", policy=Policy(deadline=10.0)) as cache:
        print("Ask about Python; an empty line ends.")
        while question := _read("ask> "):
            answer = cache.get_or_compute(CacheRequest(question, model="faq"), ask_model)
            found = answer.decision
            if isinstance(found, Hit):
                print(f"[from the cache: {found.match} match for {found.prompt!r}]")
            else:
                print(f"[from the model: {found.reason}]")
            print(answer.text)
            if answer.lookup_id is None:
                continue
            thumb = {"+": 1, "-": -1}.get(_read("thumb (+ or -, or nothing)> "))
            if thumb is None:
                continue
            try:
                result = cache.feedback(answer.lookup_id, thumb, rater=options.user)
                print(f"[thanks, {options.user}: {result.action}]")
            except RateLimitedError:
                print("[thanks; that's enough for now]")


def _read(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        return ""


if __name__ == "__main__":
    main()
