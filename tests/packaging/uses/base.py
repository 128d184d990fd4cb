"""Without extras: embedded server, bundled encoder, a hit by meaning, and a withdrawal."""

from semcache import CacheRequest, Hit, Policy, SemanticCache

with SemanticCache.open(policy=Policy(deadline=10.0)) as cache:  # the first lookup of a process is slow
    request = CacheRequest("How do I reset my password?", model="m")
    assert not cache.lookup(request)
    assert cache.put(request, "Open Settings.")
    found = cache.lookup(CacheRequest("How can I reset my password?", model="m"))
    assert isinstance(found, Hit), found
    assert (found.match, found.text) == ("semantic", "Open Settings.")
    assert not cache.lookup(CacheRequest("How do I reset my username?", model="m"))
    cache.invalidate(model="m")
    assert not cache.lookup(request)
print("used")
