"""`producer verify`: check that a published dataset is complete and correct. Reads only the output; needs no Redis or GPU.

`verify` walks through the dataset, `published` reads the manifest, `rows` checks the two files of a shard, `source`
compares them with the input, and `report` formats the findings.
"""
