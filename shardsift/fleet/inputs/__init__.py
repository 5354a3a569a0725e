"""Input files of each format: Parquet, JSON Lines and CSV.

`opening` lists the files and gives an `InputFile` whatever the format, so that other code knows no formats. `formats` says which
name means which.
JSON Lines and CSV are both lines, which `line_blocks` reads in blocks; `json_lines` and `csv_file` read a block.
"""
