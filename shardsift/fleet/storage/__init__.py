"""Read shards from, and write outputs to, folders, buckets and the Hugging Face Hub.

`open_output` opens outputs by URI. `output` defines the interface of an output; `folder` and `hub` implement it.
`errors` translates the libraries' errors into ours. Knows nothing of ledgers or tasks.
"""
