"""The scripts, as package data: `lua/<fence>/` one operation a file, `lua/run/` the pipeline's steps."""
