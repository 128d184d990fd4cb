"""Indexes: they find the nearest embeddings inside one scope.

Import a back end from its module: `arena` (exact), `hnsw` (graphs), `adaptive` (both, the default).
"""
