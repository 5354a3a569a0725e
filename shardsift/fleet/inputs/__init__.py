"""Input files of each format: Parquet, JSON Lines and CSV.

`open_input` lists the files and opens each as an `InputFile`, so that other code does not depend on the format;
`formats` has the endings. `line_blocks` reads blocks of lines, which `json_lines` and `csv_file` parse.
"""
