"""Where shards come from and where outputs go: folders, buckets and the Hugging Face Hub.

`opening` opens what a URI names; `output` says what an output must do, `folder` and `hub` do it; `errors` turns the
libraries' errors into ours. Knows nothing of ledgers or tasks.
"""
