"""Retrieval-augmented answers: what was retrieved is part of the scope, so a changed document is never answered from before.

python examples/rag.py
"""

from semcache import Answer, CacheRequest, Policy, SemanticCache
from semcache.encoders import BundledEncoder

DOCUMENTS = {
    "returns": "You can return anything within 30 days of delivery. Shipping back is free.",
    "delivery": "Delivery takes two to four working days. Express delivery takes one day and costs 9 euros.",
    "warranty": "All devices have a warranty of two years. Batteries have six months.",
}
encoder = BundledEncoder()


def retrieve(question: str) -> list[str]:
    """Return the names of the documents that fit; stands for your vector database."""
    names = list(DOCUMENTS)
    similarities = encoder.encode([question])[0] @ encoder.encode([DOCUMENTS[n] for n in names]).T
    return [names[int(similarities.argmax())]]


def ask_model(request: CacheRequest) -> str:
    """Answer from the context; stands for your model."""
    return f"According to our terms: {request.context}"


def answer(cache: SemanticCache, question: str) -> Answer:
    found = retrieve(question)
    request = CacheRequest(
        question,
        model="gpt-4o-mini",
        # Everything the model reads beside the question must match exactly.
        context=[{"document": name, "text": DOCUMENTS[name]} for name in found],
    )
    # The tags withdraw whatever came of a document, however it was asked.
    return cache.get_or_compute(request, ask_model, tags={f"document:{name}" for name in found})


def main() -> None:
    with SemanticCache.open("memory://", policy=Policy(deadline=10.0)) as cache:

        def show(question: str) -> None:
            given = answer(cache, question)
            print("hit " if given.hit else "miss", question, "→", given.text[:110])

        show("How many days do I have to return something?")
        show("How many days do I have to return anything?")  # other words, same passages: a hit
        DOCUMENTS["returns"] = "You can return anything within 14 days of delivery."
        show("How many days do I have to return something?")  # the document changed: a miss
        show("How many days do I have to return something?")
        cache.invalidate(tags={"document:returns"})
        show("How many days do I have to return something?")  # withdrawn by its document: a miss


if __name__ == "__main__":
    main()
