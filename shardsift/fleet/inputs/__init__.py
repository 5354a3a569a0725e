"""Input files of each format: Parquet, JSON Lines and CSV.

`open_input` lists the files and opens each as an `InputFile`, so that other code knows no formats; `formats` names the
endings. JSON Lines and CSV are both lines: `line_blocks` reads blocks of them, which `json_lines` and `csv_file` parse.
"""
