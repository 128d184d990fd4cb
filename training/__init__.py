"""Training of semcache's own encoder; not part of the distribution. Start with README.md."""
