"""Check that a published dataset is complete and correct. Reads only the output; needs no Redis or GPU.

`verify` reads the manifest and walks through the dataset, `rows` checks the two files of a shard, `source` compares
them with the input, and `verification` formats the findings.
"""
