"""Write outputs to folders, buckets and the Hugging Face Hub, and read files from them.

`open_output` opens outputs by URI. `output` defines the interface of an output; `folder` and `hub` implement it.
`errors` converts the libraries' errors to ours. Knows nothing of ledgers or tasks.
"""
