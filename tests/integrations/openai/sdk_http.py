"""The HTTP library that the installed OpenAI SDK stands on: httpx2, or httpx for those before it."""

from __future__ import annotations

from typing import Any

import openai

if int(openai.__version__.partition(".")[0]) >= 3:
    import httpx2 as library

    DefaultClient: Any = openai.DefaultHttpx2Client
    DefaultAsyncClient: Any = openai.DefaultAsyncHttpx2Client
else:
    import httpx as library

    DefaultClient = openai.DefaultHttpxClient
    DefaultAsyncClient = openai.DefaultAsyncHttpxClient

__all__ = ["DefaultAsyncClient", "DefaultClient", "library"]
