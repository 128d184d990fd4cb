"""A semantic cache under the OpenAI SDK: it answers below the SDK's HTTP client, so SDK types come back genuine."""
